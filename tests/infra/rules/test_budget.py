"""What a budget refuses: worst cases that are known to break it, and plans that nobody can hold against it."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from infra.cost import bill
from infra.settings.errors import SettingsError
from infra.settings.read import parse
from infra.settings.schema import Budget
from tests.infra.legal_values import legal_values
from tests.infra.recording import Values


def told(values: Values) -> dict[str, str]:
    try:
        parse(values)
    except SettingsError as error:
        return {fault.path: str(fault) for fault in error.errors}
    return {}


@hypothesis_settings(deadline=None)
@given(legal_values(), st.floats(0.01, 1e6))
def test_a_plan_keeps_to_its_hourly_budget_at_worst(values: Values, limit: float) -> None:
    most = bill(parse(values), {}, None).at_most
    refused = bool(told(values | {"budget": {"usd_per_hour": limit}}))
    assert refused == (bool(most.unknown) or most.usd_per_hour > limit)


def test_a_plan_may_cost_just_its_budget(values: Values) -> None:
    values["budget"] = {"usd_per_hour": 16 * 1.215, "usd_total": 3 * 16 * 1.215}
    values["job"]["max_hours"] = 3
    assert told(values) == {}


def test_a_fault_tells_what_each_group_costs(values: Values) -> None:
    values["slices"]["spare"] = values["slices"]["trillium"] | {"capacity": "on-demand"}
    values["budget"] = {"usd_per_hour": 50}
    assert "at most 50.00 USD per hour when all are there, got 62.64 (trillium 19.44, spare 43.20)" in str(told(values))


def test_capacity_that_has_yet_to_come_counts(values: Values) -> None:
    values["slices"]["trillium"]["capacity"] = {"kind": "flex-start", "max_run_hours": 1}
    values["budget"] = {"usd_per_hour": 10}
    assert "got none of trillium; write what a chip hour costs" in told(values)["budget.usd_per_hour"]
    values["prices"] = {"usd_per_chip_hour": {"trillium": 1}}
    assert "got 16.00" in told(values)["budget.usd_per_hour"]


def test_a_job_without_an_end_keeps_to_no_budget(values: Values) -> None:
    values["budget"] = {"usd_total": 194.4}
    assert told(values)["budget.usd_total"].endswith(
        "write job.max_hours: 10, which 194.40 USD pay at 19.44 USD per hour"
    )
    values["job"]["max_hours"] = 10
    assert told(values) == {}


def test_what_is_advised_is_legal(values: Values) -> None:
    values["budget"] = {"usd_total": 1e9}
    assert "write job.max_hours: 8760, which" in told(values)["budget.usd_total"]
    values["budget"] = {"usd_total": 0.01}
    assert told(values)["budget.usd_total"].endswith("; raise the budget")
    values["job"]["max_hours"] = 1
    assert told(values)["budget.usd_total"].endswith("; raise the budget")


def test_a_job_is_judged_by_the_dearest_slices_that_it_may_run_on(values: Values) -> None:
    values["slices"]["spare"] = values["slices"]["trillium"] | {"capacity": "on-demand"}
    values["teams"]["research"]["quota"] |= {"spare": 16}
    values["job"] |= {"max_hours": 10}
    values["job"]["slices"]["fallback"] = ["spare"]
    values["budget"] = {"usd_total": 200}
    fault = told(values)["budget.usd_total"]
    assert "got 432.00, since it may hold 2 slices of trillium or spare for 10 hours" in fault
    assert fault.endswith("lower job.max_hours to 4.62 or raise the budget")


def test_a_job_on_chips_of_unknown_price_keeps_to_no_budget(values: Values) -> None:
    values["slices"]["trillium"]["capacity"] = {"kind": "reservation", "name": "chips"}
    values["job"]["max_hours"] = 1
    values["budget"] = {"usd_total": 1e6}
    assert "prices.usd_per_chip_hour.trillium" in told(values)["budget.usd_total"]


@pytest.mark.parametrize("written", ["2026-03-01", "2026-03-01 00:00:00 +0000 UTC"])
def test_a_date_needs_no_quotation_marks(values: Values, written: str) -> None:
    values["budget"] = {"expires_on": written}
    assert parse(values).budget == Budget(expires_on=date(2026, 3, 1))


def test_a_date_that_does_not_exist_is_a_fault(values: Values) -> None:
    values["budget"] = {"expires_on": "2026-02-30"}
    assert "got '2026-02-30'" in told(values)["budget.expires_on"]
