"""Prices and bills."""

import json

import pytest

from infra.stack.cost import (
    ListPrice,
    bill,
    group_rate,
    list_rate,
    price_table,
    read_bill,
    usd_per_job_hour,
)
from infra.stack.settings.read import parse
from infra.stack.settings.stack import FleetSpec
from infra.stack.tpu import generations
from tests.infra.one_job import only_group, only_job
from tests.infra.recording import Values, stack_values
from tests.infra.spoiling import edited

MAX_USD = 100
"""The catalogue writes 700 where it knows no price."""


@pytest.mark.parametrize("row", price_table().prices, ids=lambda row: f"{row.generation}-{row.place}")
def test_a_row_names_a_generation_and_a_place_and_spot_costs_less(row: ListPrice) -> None:
    assert row.generation in {generation.name for generation in generations()}
    assert row.zone is None or row.zone.startswith(f"{row.region}-")
    assert 0 < row.usd_per_chip_hour["spot"] < row.usd_per_chip_hour["on-demand"] < MAX_USD


def test_no_place_has_two_prices() -> None:
    rows = price_table().prices
    of_regions = {(row.generation, row.region) for row in rows if row.zone is None}
    of_zones = [(row.generation, row.region) for row in rows if row.zone]
    assert len({(row.generation, row.place) for row in rows}) == len(rows)
    assert of_regions.isdisjoint(of_zones)


@pytest.mark.parametrize(
    ("generation", "zone", "kind", "why"),
    [
        ("v5p", "europe-west4-a", "on-demand", "known for europe-west4-a, only for us-central1-a, us-"),
        ("v4", "us-east5-b", "spot", "v4 spot is known for us-east5-b, only for us-central2"),
        ("7x", "us-central1-c", "on-demand", "no list price of 7x on-demand is known anywhere"),
    ],
)
def test_an_unknown_price_is_none_and_says_why(generation: str, zone: str, kind: str, why: str) -> None:
    rate = list_rate(generation, zone.rpartition("-")[0], zone, kind)
    assert (rate.usd_per_chip_hour, rate.date, rate.place) == (None, None, None)
    assert why in rate.source


_GROUP, _CAPACITY = "slices.trillium", "slices.trillium.capacity"
_INDIA = {"cloud.region": "asia-south1", "cloud.zone": "asia-south1-c"}
_EUROPE = {"cloud.region": "europe-west4", "cloud.zone": "europe-west4-a", f"{_GROUP}.zone": "europe-west4-b"}
_V5P = {f"{_GROUP}.generation": "v5p", f"{_GROUP}.topology": "2x2x2"}
_CONTRACT = "prices.usd_per_chip_hour"


@pytest.mark.parametrize(
    ("changes", "usd", "place", "source"),
    [
        ({}, 1.215, "us-east5", ""),
        ({_CAPACITY: "on-demand"}, 2.7, "us-east5", ""),
        (_INDIA, 2.27, "asia-south1", ""),
        (_EUROPE | _V5P, 1.3485, "europe-west4-b", ""),
        ({_CONTRACT: {"trillium": 0.5}}, 0.5, None, f"{_CONTRACT} of the stack file"),
        ({_CAPACITY: {"kind": "reservation", "name": "chips"}}, None, None, "agreed with Google"),
        ({_CAPACITY: {"kind": "flex-start", "max_run_hours": 1}}, None, None, "no list price of flex-start"),
        (
            {_CAPACITY: {"kind": "queued", "max_run_hours": 1}, "job.slices.count": 1},
            None,
            None,
            "by which queued chips come",
        ),
    ],
)
def test_a_group_has_the_price_of_its_contract_or_of_its_capacity_in_its_zone(
    values: Values, changes: Values, usd: float | None, place: str | None, source: str
) -> None:
    settings = parse(edited(values, changes))
    rate = group_rate("trillium", settings.slices["trillium"], settings.cloud, settings.prices)
    assert (rate.usd_per_chip_hour, rate.place, source in rate.source) == (usd, place, True)
    assert rate.date == (price_table().source.date if place else None)


def test_standing_slices_cost_from_the_start_and_a_month_has_730_hours() -> None:
    found = bill(parse(stack_values("local")), {}, None)
    assert found.at_once == found.at_most == found.by_capacity["on-demand"]
    assert (found.at_once.usd_per_hour, found.at_once.usd_per_month) == (16 * 2.7, 31536)
    assert found.groups[0].rate.place == "us-east5"


def test_slices_that_come_on_request_cost_nothing_until_they_are_there() -> None:
    values = stack_values("staging")
    assert bill(parse(values), {}, None).at_most.unknown == ("trillium",)
    found = bill(parse(values | {"prices": {"usd_per_chip_hour": {"trillium": 1.5}}}), {}, None)
    assert (found.at_once.usd_per_hour, found.at_most.usd_per_hour, found.at_most.unknown) == (0, 32 * 1.5, ())


def test_an_unknown_price_is_named_and_never_nothing() -> None:
    found = bill(parse(stack_values("prod") | {"prices": {}}), {"pretrain": 1.0}, None)
    assert (found.groups[0].usd_per_hour, found.groups[0].usd_per_month) == (None, None)
    assert found.at_once.unknown == found.at_most.unknown == ("cubes",)
    assert found.jobs[0].groups[0].usd is None


def test_a_job_costs_its_steps_on_its_own_slices_wherever_it_may_run(values: Values) -> None:
    trillium = values["slices"]["trillium"]
    values["slices"]["spare"] = trillium | {"count": 4, "capacity": "on-demand"}
    values["teams"]["research"]["quota"] |= {"spare": 16}
    values["job"] |= {"training": {"steps": 7200}, "max_hours": 3}
    values["job"]["slices"]["fallback"] = ["spare"]
    (job,) = bill(parse(values), {"tiny": 0.5}, None).jobs
    assert (job.chips, job.steps, job.hours) == (16, 7200, 1)
    assert [(each.group, each.usd, each.usd_at_most) for each in job.groups] == [
        ("trillium", 19.44, 58.32),
        ("spare", 43.2, 129.6),
    ]
    (unestimated,) = bill(parse(values), {}, None).jobs
    assert (unestimated.hours, unestimated.groups[0].usd, unestimated.groups[0].usd_at_most) == (None, None, 58.32)


def test_a_changed_group_is_listed_with_its_chips_and_additional_cost() -> None:
    values = stack_values("local")
    before = bill(parse(values), {}, None)
    values["slices"]["trillium"]["count"] = 3
    values["slices"]["reserved"] = values["slices"]["trillium"] | {"capacity": {"kind": "reservation", "name": "r"}}
    delta = bill(parse(values), {}, before).delta
    assert delta
    assert [(group.name, group.chips_before, group.chips, group.usd_per_hour) for group in delta.groups] == [
        ("trillium", 16, 24, 21.6),
        ("reserved", 0, 24, None),
    ]
    assert (delta.at_most.usd_per_hour, delta.at_most.unknown) == (21.6, ("reserved",))


def test_billing_on_request_instead_of_from_the_start_is_a_change_at_the_same_price() -> None:
    values = stack_values("local")
    values["prices"] = {"usd_per_chip_hour": {"trillium": 2.0}}
    before = bill(parse(values), {}, None)
    values["slices"]["trillium"]["capacity"] = {"kind": "flex-start", "max_run_hours": 4}
    delta = bill(parse(values), {}, before).delta
    assert delta
    assert [(group.name, group.chips_before, group.chips, group.usd_per_hour) for group in delta.groups] == [
        ("trillium", 16, 16, 0)
    ]
    assert (delta.at_once.usd_per_hour, delta.at_most.usd_per_hour) == (-32, 0)


@pytest.mark.parametrize("stack", ["local", "staging", "prod"])
def test_a_bill_is_the_same_when_it_comes_back_from_the_outputs(stack: str) -> None:
    settings = parse(stack_values(stack))
    found = bill(settings, dict.fromkeys(settings.jobs, 0.25), None)
    # Pulumi leaves out what is None, and makes every number a float.
    outputs = json.loads(found.model_dump_json(exclude_none=True), parse_int=float)
    assert read_bill(outputs) == found
    assert read_bill(outputs | {"groups": "12 USD"}) is None


@pytest.mark.parametrize(("second", "usd_per_hour"), [(2.0, 2.0), (1.0, None)])
def test_groups_of_different_prices_leave_the_price_of_the_job_open(
    two_teams: Values, second: float, usd_per_hour: float | None
) -> None:
    settings = parse(two_teams)
    job, group = only_job(settings), only_group(settings)
    prices = settings.prices.model_copy(update={"usd_per_chip_hour": {"a": 2.0, "b": second}})
    slices = job.slices.model_copy(update={"group": "a", "fallback": ("b",)})
    job = job.model_copy(update={"slices": slices})
    either = settings.model_copy(update={"slices": {"a": group, "b": group}, "prices": prices, "jobs": {job.name: job}})
    chips = job.slices.count * group.shape.chips
    assert usd_per_job_hour(FleetSpec.of(either), job) == (None if usd_per_hour is None else usd_per_hour * chips)
