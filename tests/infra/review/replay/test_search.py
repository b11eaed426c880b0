"""The search for quotas, limits, shapes and spares."""

from typing import Any

import pytest

from infra.review.admission.situation import FlavorQuota
from infra.review.replay.fleet import Fleet
from infra.review.replay.search import BoundsError, axes, search
from infra.review.replay.simulation import Conditions
from infra.review.replay.trace import Trace
from tests.infra.review.admission.situations import limited, queue
from tests.infra.review.replay.fleets import USUAL, fleet, group, job, of_queues, trace


def _best(
    of: Trace, on: Fleet, *bounds: str, p90_hours: float | None = None, **more: Any
) -> dict[str, tuple[int | None, int | None]]:
    conditions = Conditions(**USUAL | more)
    found = search(of, on, conditions, axes(bounds, on, conditions.spares), p90_hours, 24)
    assert 1 <= len(found.best) <= 3
    return dict(found.best[0].changes)


def test_chips_that_no_job_needs_are_given_back() -> None:
    jobs = trace(*(job(f"j{index}", at=index, hours=1) for index in range(20)))
    change = _best(jobs, fleet({"a": 64}), "slices.x.count=1..4", p90_hours=0.1)
    assert change == {"slices.x.count": (4, 1), "teams.a.quota.x": (64, 16)}


def test_slices_that_a_job_cannot_do_without_are_kept() -> None:
    jobs = trace(
        *(job(f"j{index}", hours=12) for index in range(14)), job("large", at=13, hours=6, slices=15), hours=48
    )
    assert _best(jobs, fleet({"a": 15 * 16}), "slices.x.count=5..15", p90_hours=12) == {}


def test_a_borrowing_limit_is_lifted_if_waits_must_be_short() -> None:
    jobs = trace(*(job(f"j{index}", team="b", hours=5) for index in range(3)))
    within: dict[str, int | FlavorQuota] = {"a": 32, "b": limited("x", 16, borrow=0)}
    path = "teams.b.quota.x.borrowing_limit"
    assert _best(jobs, fleet(within), f"{path}=0,16,none", p90_hours=0)[path][1] in (None, 32)


def test_quotas_move_between_teams_and_never_exceed_their_group() -> None:
    quotas = "teams.a.quota.x=0..64", "teams.b.quota.x=0..64"
    jobs = trace(*(job(f"j{index}", team="b", hours=5) for index in range(4)))
    on = fleet({"a": 64, "b": limited("x", 0, borrow=0)})
    assert _best(jobs, on, *quotas, p90_hours=0) == {"teams.a.quota.x": (64, 0), "teams.b.quota.x": (0, 64)}


def test_no_team_lends_more_than_it_has_and_no_group_is_empty() -> None:
    lender = fleet({"a": limited("x", 64, lend=64), "b": 0})
    bounds = axes(["teams.a.quota.x=0..64", "slices.x.count=0..4"], lender, 0)
    assert search(trace(job("only")), lender, Conditions(**USUAL), bounds, None, 24).tried == 1
    freely = fleet({"a": 64, "b": 0})
    assert search(trace(job("only")), freely, Conditions(**USUAL), bounds, None, 24).tried == 5 + 4 + 3 + 2


@pytest.mark.parametrize(
    ("quotas", "slices", "expected"),
    [({"a": 11 * 16}, 15, {"a": 15 * 16}), ({"a": 64, "b": 48, "c": 16}, 3, {"a": 32, "b": 16, "c": 0})],
)
def test_quotas_follow_the_number_of_slices_and_no_slice_is_without_an_owner(
    quotas: dict[str, int], slices: int, expected: dict[str, int]
) -> None:
    jobs = trace(job("all", slices=slices, hours=24))
    change = _best(jobs, fleet({**quotas}), f"slices.x.count={slices}")
    assert change == {
        "slices.x.count": (sum(quotas.values()) // 16, slices),
        **{f"teams.{team}.quota.x": (quotas[team], chips) for team, chips in expected.items()},
    }


def test_shapes_of_one_reservation_are_exchanged() -> None:
    small = group("small", 16, "2x2", 4, reservation="r")
    large = group("large", 32, "4x4", 16, reservation="r")
    team = queue("a", {"small": 16, "large": 32})
    jobs = trace(*(job(f"j{index}", shape="2x2", hours=4) for index in range(8)))
    change = _best(
        jobs, of_queues([team], small, large), "slices.small.count=0..8/4", "slices.large.count=1,2", p90_hours=0
    )
    assert {path: new for path, (_, new) in change.items()} == {
        "slices.small.count": 8,
        "slices.large.count": 1,
        "teams.a.quota.small": 32,
        "teams.a.quota.large": 16,
    }


def test_spares_are_bought_only_if_failures_make_jobs_wait() -> None:
    jobs = trace(job("run", hours=23, slices=2, save_hours=0.5))
    assert _best(jobs, fleet({"a": 32}), "spares=0..2") == {}
    assert _best(jobs, fleet({"a": 32}), "spares=0..2", failures_per_day=1, repair_hours=20) != {}


@pytest.mark.parametrize(
    "bounds",
    [
        ["teams.a.quota.x"],
        ["teams.a.quota.y=1,2"],
        ["teams.c.quota.x=1,2"],
        ["teams.a.quota.x=none"],
        ["colour=1"],
        ["spares=5..x"],
        ["spares=8..2"],
        ["spares=0..10000000000"],
        ["spares=0..2", "spares=1"],
    ],
)
def test_bounds_that_cannot_be_searched_are_refused(bounds: list[str]) -> None:
    with pytest.raises(BoundsError):
        axes(bounds, fleet({"a": 32}), 0)
