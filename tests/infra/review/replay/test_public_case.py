"""The public case vllm-project/ci-infra#470: 100 chips divided between three shapes, and what its teams tried.

Demand and slices are those of the case; lengths of jobs (median half an hour) and the afternoon's peak are drawn. So
only orders of magnitude are tested.
"""

from typing import Any

from infra.review.replay.fleet import Fleet
from infra.review.replay.results import Summary
from tests.infra.review.admission.situations import queue
from tests.infra.review.replay.fleets import drawn, group, of_queues, stream, summary

_SHAPES = {"1x1x1": 1, "2x2x1": 4, "2x2x2": 8}
_MEAN_HOURS = 0.55
_HOURS_PER_DAY = {"1x1x1": 153, "2x2x1": 292, "2x2x2": 27}
"""Hours of slices that jobs ask for each day."""
_SLICES = {"1x1x1": 12, "2x2x1": 16, "2x2x2": 3}
_MOVED = {"1x1x1": 4, "2x2x1": 20, "2x2x2": 2}


def _jobs(days: float = 3) -> Any:
    kinds = (
        stream(shape, hours / _MEAN_HOURS, shape=shape, slices=[1], hours={"median": 0.5, "p90": 0.9}, peak_share=0.5)
        for shape, hours in _HOURS_PER_DAY.items()
    )
    return drawn(*kinds, days=days)


def _pools(slices: dict[str, int]) -> Fleet:
    """A pool of slices for each shape, as they had."""
    groups = [group(shape, slices[shape] * chips, shape, chips) for shape, chips in _SHAPES.items()]
    return of_queues([queue(shape, {shape: slices[shape] * chips}) for shape, chips in _SHAPES.items()], *groups)


def _one_pool(reclaim: str) -> Fleet:
    """All chips as one flavor, of which each shape owns as many as before and lends what is idle."""
    queues = [queue(shape, {"x": _SLICES[shape] * chips}, reclaim=reclaim) for shape, chips in _SHAPES.items()]
    return of_queues(queues, group("x", 100, "", 4))


def _minutes(found: Summary, shape: str) -> tuple[float, float]:
    (waits,) = (each for each in found.waits if each.shape == shape)
    return 60 * waits.p50, 60 * waits.p90


def test_a_pool_for_each_shape_leaves_a_third_idle_while_one_shape_waits_for_hours() -> None:
    found = summary(_jobs(), _pools(_SLICES))
    idle = found.chip_hours.idle / 3
    assert 863 / 1.5 < idle < 863 * 1.5
    assert 228 / 3 < _minutes(found, "2x2x1")[1] < 228 * 3
    assert _minutes(found, "2x2x2")[0] < 10


def test_the_repartition_that_was_undone_after_a_day_starves_the_shape_that_gave_chips() -> None:
    before, after = (summary(_jobs(), _pools(slices)) for slices in (_SLICES, _MOVED))
    assert _minutes(before, "1x1x1")[0] < 60
    assert _minutes(after, "1x1x1")[0] > 12 * 60
    assert _minutes(after, "2x2x1")[1] < _minutes(before, "2x2x1")[1]
    assert {each.shape for each in after.starved} == {"1x1x1"}


def test_one_pool_starves_the_largest_shape_unless_owners_reclaim() -> None:
    starves, reclaims = (summary(_jobs(), _one_pool(reclaim)) for reclaim in ("Never", "Any"))
    assert _minutes(starves, "2x2x2")[1] > 120
    assert _minutes(reclaims, "2x2x2")[1] < _minutes(starves, "2x2x2")[1] / 5
    assert reclaims.preemptions > 20
    assert reclaims.lost_chip_hours < 0.05 * reclaims.chip_hours.useful
