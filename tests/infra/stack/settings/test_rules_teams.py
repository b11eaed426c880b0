"""Rules of teams and money."""

from datetime import date
from typing import Any

import pytest

from infra.stack.settings.read import parse
from infra.stack.settings.schema import Budget
from tests.infra.recording import Values
from tests.infra.spoiling import edited, errors_of

_LENDING_4 = {"quota": {"trillium": {"chips": 0, "lending_limit": 4}}}
_BOLD = {"preemption": {"while_borrowing": "lower-priority"}}
_WITHOUT_RECLAIM = {"preemption": _BOLD["preemption"] | {"reclaim": "never"}}


def _two_teams(values: Values, more: Values, scheduling: Values) -> Values:
    other: dict[str, Any] = {"namespace": "other", "quota": {"trillium": 0}}
    return values | {"teams": values["teams"] | {"other": other | more}, "scheduling": scheduling}


@pytest.mark.parametrize(
    ("more", "scheduling", "path", "words"),
    [
        (_LENDING_4, {}, "quota.trillium.lending_limit", "the team's own 0 chips, got 4; lower it or remove it to"),
        ({"weight": 2}, {}, "weight", "no weight without fair sharing, got 2"),
        ({"weight": 0.0001}, {"fair_sharing": True}, "weight", "a multiple of 0.001, got 0.0001"),
        (_BOLD, {"fair_sharing": True}, "preemption.while_borrowing", "never, since fair sharing itself decides which"),
        (_WITHOUT_RECLAIM, {}, "preemption.reclaim", "lower-priority or any, since in Kueue only a team that may"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(
    values: Values, more: Values, scheduling: Values, path: str, words: str
) -> None:
    text = errors_of(_two_teams(values, more, scheduling))
    assert list(text) == [f"teams.other.{path}"]
    assert words in text[f"teams.other.{path}"]


_CAPACITY, _PRICE, _TOTAL = "slices.trillium.capacity", "prices.usd_per_chip_hour.trillium", "budget.usd_total"
_OWN = "teams.research.quota.trillium"
_ON_REQUEST = {_CAPACITY: {"kind": "flex-start", "max_run_hours": 1}}
_RESERVED = {_CAPACITY: {"kind": "reservation", "name": "chips"}, "job.max_hours": 1}
_MEMBERS = {"users": ["ada@example.com"], "groups": ["research@example.com"]}
_NOT_COUNTED = "expected exclusive-topology, since nodes of trillium do not exist yet when Kueue counts"
_NOT_ASKED = "does not ask Google who is in a group, got research@example.com; set cluster.security_group"
_REFUSED: list[tuple[Values, str, str]] = [
    ({"scheduling.placement": "topology-aware"} | _ON_REQUEST, "scheduling.placement", _NOT_COUNTED),
    ({"teams.research.members": _MEMBERS}, "teams.research.members.groups", _NOT_ASKED),
    ({"teams.research.members.users": ["Ada@example.com"]}, "teams.research.members.users.0", ""),
    ({"teams.research.members.users": ["ada"]}, "teams.research.members.users.0", ""),
    ({"cluster.security_group": "all-teams@example.com"}, "cluster.security_group", ""),
    ({_OWN: {"chips": 16, "borrowing_limit": 0, "lending_limit": 16}}, _OWN, "got borrowing_limit and lending_limit;"),
    # Capacity that has yet to come counts.
    ({"budget.usd_per_hour": 10} | _ON_REQUEST, "budget.usd_per_hour", "got none of trillium; write your price of a"),
    ({"budget.usd_per_hour": 10, _PRICE: 1} | _ON_REQUEST, "budget.usd_per_hour", "got $16.00"),
    # A job without an end, or on chips of an unknown price, keeps to no budget. What is advised is legal.
    ({_TOTAL: 194.4}, _TOTAL, "write job.max_hours: 10, which costs $194.40 at $19.44 an hour"),
    ({_TOTAL: 1e9}, _TOTAL, "write job.max_hours: 8760, which"),
    ({_TOTAL: 0.01}, _TOTAL, "; raise the budget"),
    ({_TOTAL: 0.01, "job.max_hours": 1}, _TOTAL, "; raise the budget"),
    ({_TOTAL: 1e6} | _RESERVED, _TOTAL, _PRICE),
    ({"budget.expires_on": "2026-02-30"}, "budget.expires_on", "got '2026-02-30'"),
    ({"prices.usd_per_chip_hour.trilium": 2.0}, "prices.usd_per_chip_hour", "slice groups trillium, got 'trilium'"),
]


@pytest.mark.parametrize(("changes", "path", "words"), _REFUSED, ids=[f"{row[1]}-{row[2][:12]}" for row in _REFUSED])
def test_a_rule_of_teams_or_money_says_what_it_expected(values: Values, changes: Values, path: str, words: str) -> None:
    assert words in errors_of(edited(values, changes))[path]


def test_names_of_team_and_job_fit_into_one_label_together(values: Values) -> None:
    team, name = "t" * 40, "j" * 23
    values["teams"] = {team: values["teams"]["research"]}
    values["job"] |= {"team": team, "name": name}
    assert "at most 62 characters together, got 63" in errors_of(values)["job"]
    values["job"]["name"] = name[1:]
    assert parse(values).jobs


GROUP = {"generation": "v6e", "topology": "2x4", "count": 2, "capacity": "spot"}
"""16 chips, all of which the job takes."""


def _stack(values: Values, own: object, *others: object, fallback: tuple[str, ...] = ()) -> Values:
    """Two groups of 16 chips, the job's team with quota `own`, and teams with the quotas `others`."""
    lenders = {f"team-{index}": {"namespace": f"n{index}", "quota": quota} for index, quota in enumerate(others)}
    return values | {
        "slices": {"trillium": GROUP, "azure": GROUP},
        "teams": {"research": {"namespace": "research", "quota": own}, **lenders},
        "job": values["job"] | {"slices": {"group": "trillium", "count": 2, "fallback": list(fallback)}},
    }


@pytest.mark.parametrize(
    ("own", "other"),
    [
        (16, 0),
        (8, 8),
        (0, 16),
        ({"chips": 8, "borrowing_limit": 8}, {"chips": 8, "lending_limit": 8}),
        ({"chips": 16, "lending_limit": 0, "borrowing_limit": 0}, 0),
    ],
)
def test_a_job_may_live_on_its_own_chips_and_those_it_borrows(values: Values, own: object, other: object) -> None:
    parse(_stack(values, {"trillium": own}, {"trillium": other}))


@pytest.mark.parametrize(
    ("own", "others", "words"),
    [
        (12, [], "at least the 16 chips of job tiny, got 12; raise it to 16 or lower job.slices.count"),
        (8, [4], "got 8 of its own and 4 that it may borrow; raise it to 12, or the limits, or lower job.slices.count"),
        ({"chips": 8, "borrowing_limit": 4}, [8], "got 8 of its own and 4 that it may borrow; raise it to 12"),
        (8, [{"chips": 8, "lending_limit": 2}], "got 8 of its own and 2 that it may borrow; raise it to 14"),
        (0, [4, {"chips": 8, "lending_limit": 8}], "got 0 of its own and 12 that it may borrow; raise it to 4"),
    ],
)
def test_a_job_that_could_never_be_admitted_is_refused(
    values: Values, own: object, others: list[object], words: str
) -> None:
    errors = errors_of(_stack(values, {"trillium": own}, *({"trillium": other} for other in others)))
    assert errors.keys() == {"teams.research.quota.trillium"}
    assert words in errors["teams.research.quota.trillium"]


@pytest.mark.parametrize(("own", "got"), [({"trillium": 16, "azure": 8}, "got 8"), ({"trillium": 16}, "got nothing")])
def test_every_group_that_a_job_may_fall_back_to_must_be_able_to_take_it(values: Values, own: Values, got: str) -> None:
    assert got in errors_of(_stack(values, own, fallback=("azure",)))["teams.research.quota.azure"]


def test_a_team_with_a_fault_of_its_own_is_not_taken_for_one_that_lends_nothing(values: Values) -> None:
    errors = errors_of(_stack(values, {"trillium": 8}, {"trillium": "many"}))
    assert errors.keys() == {"teams.team-0.quota.trillium.chips"}


def test_a_plan_may_cost_just_its_budget(values: Values) -> None:
    values["budget"] = {"usd_per_hour": 16 * 1.215, "usd_total": 3 * 16 * 1.215}
    values["job"]["max_hours"] = 3
    assert errors_of(values) == {}


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


@pytest.mark.parametrize(
    ("capacity", "prices", "errors"),
    [("on-demand", {}, {_PRICE}), ("on-demand", {"trillium": 9.0}, set[str]()), ("spot", {}, set[str]())],
)
def test_nothing_is_bought_on_demand_at_an_unknown_price(
    values: Values, capacity: str, prices: Values, errors: set[str]
) -> None:
    values["slices"]["trillium"] |= {"generation": "7x", "topology": "2x2x2", "capacity": capacity}
    values["job"]["training"] = {"global_batch": 32}
    values["prices"] = {"usd_per_chip_hour": prices}
    assert errors_of(values).keys() == errors
