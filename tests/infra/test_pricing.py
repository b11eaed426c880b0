"""What a chip costs, and what nobody knows the price of."""

import pytest

from infra.cost import ListPrice, group_rate, list_rate, price_table
from infra.settings.read import parse
from infra.tpu import generations
from tests.infra.recording import Values

MOST_USD = 100
"""The catalogue writes 700 where it knows no price."""


@pytest.mark.parametrize("row", price_table().prices, ids=lambda row: f"{row.generation}-{row.place}")
def test_a_row_names_a_generation_and_a_place_and_spot_costs_less(row: ListPrice) -> None:
    assert row.generation in {generation.name for generation in generations()}
    assert row.zone is None or row.zone.startswith(f"{row.region}-")
    assert 0 < row.usd_per_chip_hour["spot"] < row.usd_per_chip_hour["on-demand"] < MOST_USD


def test_no_place_has_two_prices() -> None:
    rows = price_table().prices
    of_regions = {(row.generation, row.region) for row in rows if row.zone is None}
    of_zones = [(row.generation, row.region) for row in rows if row.zone]
    assert len({(row.generation, row.place) for row in rows}) == len(rows)
    assert of_regions.isdisjoint(of_zones)


@pytest.mark.parametrize(
    ("generation", "zone", "kind", "usd", "place"),
    [
        ("v6e", "us-east5-b", "on-demand", 2.7, "us-east5"),
        ("v6e", "us-east5-b", "spot", 1.215, "us-east5"),
        ("v6e", "asia-south1-c", "spot", 2.27, "asia-south1"),
        ("v5p", "europe-west4-b", "spot", 1.3485, "europe-west4-b"),
    ],
)
def test_a_list_price_holds_in_its_zone_or_region(
    generation: str, zone: str, kind: str, usd: float, place: str
) -> None:
    rate = list_rate(generation, zone.rpartition("-")[0], zone, kind)
    assert (rate.usd_per_chip_hour, rate.place, rate.date) == (usd, place, price_table().source.date)


@pytest.mark.parametrize(
    ("generation", "zone", "kind", "why"),
    [
        (
            "v5p",
            "europe-west4-a",
            "on-demand",
            "v5p on-demand is known for europe-west4-a, only for us-central1-a, us-",
        ),
        ("v4", "us-east5-b", "spot", "v4 spot is known for us-east5-b, only for us-central2"),
        ("7x", "us-central1-c", "on-demand", "no list price of 7x on-demand is known anywhere"),
    ],
)
def test_an_unknown_price_is_none_and_says_why(generation: str, zone: str, kind: str, why: str) -> None:
    rate = list_rate(generation, zone.rpartition("-")[0], zone, kind)
    assert (rate.usd_per_chip_hour, rate.date, rate.place) == (None, None, None)
    assert why in rate.source


@pytest.mark.parametrize(
    ("capacity", "why"),
    [
        ({"kind": "reservation", "name": "chips"}, "agreed with Google"),
        ({"kind": "flex-start", "max_run_hours": 1}, "no list price of flex-start"),
        ({"kind": "queued", "max_run_hours": 1}, "by which queued chips come"),
    ],
)
def test_a_kind_of_capacity_without_list_prices_says_why(capacity: dict[str, object], why: str, values: Values) -> None:
    values["slices"]["trillium"]["capacity"] = capacity
    values["job"]["slices"]["count"] = 1
    settings = parse(values)
    rate = group_rate("trillium", settings.slices["trillium"], settings.cloud, settings.prices)
    assert (rate.usd_per_chip_hour, why in rate.source) == (None, True)


def test_a_group_in_a_zone_of_its_own_costs_what_chips_cost_there(values: Values) -> None:
    values["cloud"] |= {"region": "europe-west4", "zone": "europe-west4-a"}
    values["slices"]["trillium"] |= {"generation": "v5p", "topology": "2x2x2", "zone": "europe-west4-b"}
    settings = parse(values)
    rate = group_rate("trillium", settings.slices["trillium"], settings.cloud, settings.prices)
    assert (rate.usd_per_chip_hour, rate.place) == (1.3485, "europe-west4-b")


def test_a_contract_goes_before_the_list(values: Values) -> None:
    values["prices"] = {"usd_per_chip_hour": {"trillium": 0.5}}
    settings = parse(values)
    rate = group_rate("trillium", settings.slices["trillium"], settings.cloud, settings.prices)
    assert (rate.usd_per_chip_hour, rate.source) == (0.5, "prices.usd_per_chip_hour of the stack file")
