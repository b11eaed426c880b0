from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.workloads.jobs import small_job, validated
from workloads.group.protocol import OPEN, Value
from workloads.group.view import HostId
from workloads.spec import JobSpec
from workloads.training.group_schedule import GroupSchedule
from workloads.training.outer_step import Outer, Window, result_of, tokens_of, totals_of, weight
from workloads.training.resumption import Position
from workloads.training.step_metrics import Result

FLOAT32 = np.dtype(np.float32)


def job_of(**training: object) -> JobSpec:
    """Return a job of three slices with an outer step after every fourth step."""
    job = small_job(Path("somewhere"), replica=3, fsdp=2, steps=50, global_batch=12)
    settings = {"sync_every": 4, "lost_rows": "next-step", "save_every_steps": 8, **training}
    return validated(job, slice_failure="continue", training=job.training.model_dump() | settings)


def vectors(seed: int, size: int = 1000) -> Iterator[np.ndarray]:
    random = np.random.default_rng(seed)
    while True:
        yield random.standard_normal(size).astype(np.float32)


def trained(*losses: float, counted: float = 8, skipped: bool = False) -> np.ndarray:
    """Return the totals of one slice."""
    return totals_of([(Result(loss, 0.5, 2.0, skipped, 0.0), counted) for loss in losses], len(losses))


def test_an_outer_step_is_nesterov_momentum_on_the_mean_difference_weighted_by_tokens() -> None:
    random = vectors(0)
    begin, first, second = next(random), next(random), next(random)
    outer = Outer(begin.copy(), np.zeros_like(begin))
    totals = trained(1.0, counted=30), trained(1.0, counted=10)
    tokens = [tokens_of(own) for own in totals]
    shares = [weight(own, sum(tokens)) for own in tokens]
    assert shares == [0.75, 0.25]
    parameters, momentum = begin.astype(np.float64), np.zeros(begin.size)
    for _ in range(3):
        own = [outer.parameters + first, outer.parameters - second]
        parts = [outer.difference(each, share, FLOAT32) for each, share in zip(own, shares, strict=True)]
        outer.step(parts[0] + parts[1], learning_rate=0.7, momentum=0.9)
        gradient = 0.25 * second.astype(np.float64) - 0.75 * first
        momentum = 0.9 * momentum + gradient
        parameters = parameters - 0.7 * (gradient + 0.9 * momentum)
        np.testing.assert_allclose(outer.parameters, parameters, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(outer.momentum, momentum, rtol=1e-5, atol=1e-5)


def test_an_outer_step_with_rate_one_and_without_momentum_is_the_mean_of_the_slices() -> None:
    random = vectors(1)
    outer = Outer(next(random), np.zeros(1000, np.float32))
    own = [next(random), next(random)]
    parts = [outer.difference(each, 0.5, FLOAT32) for each in own]
    outer.step(parts[0] + parts[1], 1.0, 0.0)
    np.testing.assert_allclose(outer.parameters, (own[0] + own[1]) / 2, rtol=1e-5, atol=1e-6)


def test_what_is_sent_has_the_type_of_the_wire() -> None:
    outer = Outer(np.ones(3, np.float32), np.zeros(3, np.float32))
    assert outer.difference(np.zeros(3, np.float32), 0.5, np.dtype(ml_dtypes.bfloat16)).dtype == ml_dtypes.bfloat16


def test_a_slice_that_trained_on_nothing_adds_nothing() -> None:
    outer = Outer(np.ones(3, np.float32), np.zeros(3, np.float32))
    joined, skipped, other = totals_of([], 2), trained(1.0, 1.0, skipped=True), trained(1.0, 1.0)
    tokens = [tokens_of(each) for each in (joined, skipped, other)]
    assert [weight(each, sum(tokens)) for each in tokens] == [0, 0, 1]
    assert weight(0, 0) == 0
    assert not outer.difference(np.full(3, np.nan, np.float32), 0.0, FLOAT32).any()


def test_a_step_is_reported_with_the_mean_over_the_tokens_of_all_slices() -> None:
    totals = trained(1.0, 2.0, counted=30) + trained(3.0, 4.0, counted=10) + totals_of([], 2)
    found = [result_of(row, 7.0) for row in totals]
    assert [(each.loss, each.z_loss, each.gradient_norm, each.skipped, each.ended) for each in found] == [
        (1.5, 0.5, 2.0, False, 7.0),
        (2.5, 0.5, 2.0, False, 7.0),
    ]
    assert result_of((trained(1.0, skipped=True) + trained(1.0))[0], 0.0).skipped


def test_windows_end_at_multiples_and_deal_each_part_once() -> None:
    training = job_of(steps=10).training
    window, seen = Window.after(0, 0, (0, 1, 2), training), list[int]()
    ends = list[int]()
    while True:
        seen += [window.part(number, one) for number in range(window.steps) for one in window.slices]
        ends.append(window.end)
        if window.end == 10:
            break
        window = Window.after(window.end, window.next_part, (0, 2), training)
    assert ends == [4, 8, 10]
    assert seen == [*range(4 * 3 + 6 * 2)]
    assert Window.after(10, 5, (0,), job_of().training).end == 12
    assert Window.after(4, 12, (0, 1, 2), job_of().training).before(2) == Position(6, 18)


def test_each_fragment_has_its_turn_every_so_many_steps() -> None:
    training = job_of(sync_fragments=2).training
    windows = [Window.after(step, 0, (0,), training) for step in (0, 2, 4, 6, 49)]
    assert [(window.end, window.fragment) for window in windows] == [(2, 0), (4, 1), (6, 0), (8, 1), (50, 0)]


def test_parts_of_a_lost_slice_are_missing() -> None:
    window = Window.after(0, 0, (0, 1, 2), job_of(sync_every=2).training)
    assert window.missing_parts(3 * trained(1.0, 1.0)) == 0
    assert window.missing_parts(2 * trained(1.0, 1.0) + totals_of([], 2)) == 2
    assert window.is_lost(totals_of([], 2))


def test_a_window_of_skipped_steps_is_not_lost() -> None:
    """Otherwise, slices whose losses are not finite would repeat it forever."""
    window = Window.after(0, 0, (0, 1, 2), job_of(sync_every=2).training)
    assert not window.is_lost(trained(1.0, 1.0, skipped=True) + totals_of([], 2))


@pytest.mark.parametrize(
    ("since", "step", "happens"),
    [(0, 4, []), (4, 8, ["save", "compare"]), (8, 12, ["evaluate"]), (48, 50, ["save", "compare"])],
)
def test_saves_and_evaluations_are_at_the_next_outer_step(since: int, step: int, happens: list[str]) -> None:
    job = job_of(evaluate_every_steps=9, compare_slices_every_steps=1000)
    values: dict[HostId, Value] = {
        HostId(one, 0): {"kind": "step", "since": since, "step": step, "sigterm": False} for one in (0, 2)
    }
    after = GroupSchedule(job.training, job.quorum).decide(values)
    assert [name for name in ("save", "compare", "evaluate") if after[name]] == happens
    assert (after["present"], after[OPEN]) == ([0, 2], not happens)


def test_no_slice_joins_between_the_transfer_of_moments_and_the_comparison_that_follows() -> None:
    job = job_of()
    assert GroupSchedule(job.training, job.quorum).decide({HostId(0, 0): {"kind": "moments"}}) == {OPEN: False}
