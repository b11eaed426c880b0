"""Runs whose weights are damaged by a certain batch: no step after it is finite."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.workloads.history import history
from tests.workloads.jobs import small_job
from tests.workloads.training.running import Capture, parsed, run, trained
from workloads.progress import CheckpointSkipped, RolledBack, StepProgress
from workloads.spec import JobSpec
from workloads.training.data import Order
from workloads.training.failures import Diverged, ReplicasDiffer
from workloads.training.rows import cache_folder, load_rows
from workloads.training.step import CompiledProgram, StepResult, TrainState

pytestmark = pytest.mark.costs(cpu_seconds=25)

STEPS = 12


def job(storage: Path, **training: Any) -> JobSpec:
    schedule = {"steps": STEPS, "save_every_steps": 3, "max_skipped_steps": 2, "max_rollbacks": 1}
    return small_job(storage, 1, 8, **{**schedule, "keep_checkpoints": 9, **training})


@dataclass
class Spoilt:
    """Wraps the compiled step and keeps the rows of every batch."""

    batches: set[int]
    crashes: list[tuple[int, int]]
    """Steps and batches before which the process crashes, in order."""
    rows: dict[int, np.ndarray] = field(default_factory=dict)

    def step(self, program: CompiledProgram, state: TrainState, batch: jax.Array) -> tuple[TrainState, StepResult]:
        number, rows = int(state.batch), np.asarray(batch)
        np.testing.assert_array_equal(self.rows.setdefault(number, rows), rows)
        if (int(state.step), number) in self.crashes[:1]:
            self.crashes.pop(0)
            raise ReplicasDiffer("a crash")
        if number in self.batches:
            scale = state.parameters["final_scale"] * np.nan
            state = replace(state, parameters={**state.parameters, "final_scale": scale})
        return REAL_STEP(program, state, batch)


REAL_STEP = CompiledProgram.step


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Spoilt]:
    def spoil(*batches: int, crashes: Sequence[tuple[int, int]] = ()) -> Spoilt:
        spoilt = Spoilt(set(batches), [*crashes])
        monkeypatch.setattr(CompiledProgram, "step", lambda *given: spoilt.step(*given))
        return spoilt

    return spoil


def rows_in_order(spec: JobSpec, number: int) -> np.ndarray:
    training = spec.training
    rows = load_rows(spec.data, spec.model.vocab_size, training.sequence_length, cache_folder())
    order = Order.of(rows, training.global_batch, training.seed)
    return rows.read(order.training(number, range(training.global_batch)))


def test_a_run_goes_back_and_on_with_later_data_to_its_last_step(
    tmp_path: Path, spoil: Callable[..., Spoilt], capsys: Capture
) -> None:
    spoilt = spoil(7)
    lines = trained(job(tmp_path), capsys)
    assert parsed(RolledBack, lines) == [RolledBack(1, 1, 10, 6, 6, 9)]
    steps = parsed(StepProgress, lines)
    assert [step.step for step in steps] == [*range(1, 11), *range(7, STEPS + 1)]
    assert all(np.isfinite(step.loss) for step in steps[10:])
    assert history(tmp_path) == ([*range(6), *range(10, 16)], [6, 7, 8, 9])
    for number, rows in spoilt.rows.items():
        np.testing.assert_array_equal(rows, rows_in_order(job(tmp_path), number))


def test_every_batch_counts_once_over_crashes_after_the_rollback(tmp_path: Path, spoil: Callable[..., Spoilt]) -> None:
    # Once before the first save after the rollback, which then repeats, and once after it, when it does not.
    spoilt = spoil(7, crashes=[(7, 11), (10, 14)])
    for _ in range(2):
        with pytest.raises(ReplicasDiffer, match="a crash"):
            run(job(tmp_path))
    run(job(tmp_path))
    assert not spoilt.crashes
    assert history(tmp_path) == ([*range(6), *range(10, 16)], [6, 7, 8, 9])


def test_a_checkpoint_with_the_weights_that_failed_is_moved_away_and_saved_again(
    tmp_path: Path, spoil: Callable[..., Spoilt], capsys: Capture
) -> None:
    spoil(6)
    lines = trained(job(tmp_path), capsys)
    (moved,) = parsed(CheckpointSkipped, lines)
    assert (moved.step, moved.reason) == (6, "from step 6 on, the weights are those that gave no finite step")
    assert parsed(RolledBack, lines) == [RolledBack(1, 1, 9, 3, 3, 8)]
    checkpoints = tmp_path / "runs" / "run-1" / "checkpoints"
    assert sorted(int(path.name) for path in checkpoints.iterdir()) == [3, 6, 9, 12]


@pytest.mark.parametrize(
    ("batches", "cause"),
    [
        ((7, 10), "step 9: .* 3 steps in a row was not finite or too large, after 1 of at most 1 rollbacks"),
        ((1,), "step 4: .* no checkpoint from before step 1 to go back to"),
    ],
    ids=["its rollbacks are used up", "nothing was saved before"],
)
def test_a_run_has_diverged_when(
    tmp_path: Path, spoil: Callable[..., Spoilt], batches: tuple[int, ...], cause: str
) -> None:
    spoil(*batches)
    with pytest.raises(Diverged, match=cause):
        run(job(tmp_path))
