"""Rules of teams and money."""

from datetime import date

import pytest

from infra.stack.settings.read import parse
from infra.stack.settings.schema import Budget
from tests.infra.recording import Values
from tests.infra.spoiling import errors_of


def test_names_of_team_and_job_fit_into_one_label_together(values: Values) -> None:
    team, name = "t" * 40, "j" * 23
    values["teams"] = {team: values["teams"]["research"]}
    values["job"] |= {"team": team, "name": name}
    assert "at most 62 characters together, got 63" in errors_of(values)["job"]
    values["job"]["name"] = name[1:]
    assert parse(values).jobs


def test_each_group_counts_and_a_job_is_judged_by_the_dearest_slices_that_it_may_run_on(values: Values) -> None:
    values["slices"]["spare"] = values["slices"]["trillium"] | {"capacity": "on-demand"}
    values["teams"]["research"]["quota"] |= {"spare": 16}
    values["job"] |= {"max_hours": 10}
    values["job"]["slices"]["fallback"] = ["spare"]
    values["budget"] = {"usd_per_hour": 50, "usd_total": 200}
    errors = errors_of(values)
    assert "got $62.64 (trillium $19.44, spare $43.20)" in errors["budget.usd_per_hour"]
    assert "got $432.00, since it may hold 2 slices of trillium or spare" in errors["budget.usd_total"]
    assert "lower job.max_hours to 4.62" in errors["budget.usd_total"]


@pytest.mark.parametrize("written", ["2026-03-01", "2026-03-01 00:00:00 +0000 UTC"])
def test_a_date_needs_no_quotation_marks(values: Values, written: str) -> None:
    values["budget"] = {"expires_on": written}
    assert parse(values).budget == Budget(expires_on=date(2026, 3, 1))
