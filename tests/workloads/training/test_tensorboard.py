from pathlib import Path
from typing import cast

import pytest
from etils import epath
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from multislice_run.records.lines import StepLine
from workloads.training import trackers as module
from workloads.training.trackers import TensorBoard, Trackers


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return every curve as TensorBoard shows it."""
    found = EventAccumulator(str(folder)).Reload()
    tags = cast(dict[str, list[str]], found.Tags())
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in tags["scalars"]}


def opened(folder: Path, start: int) -> Trackers:
    trackers = Trackers({"tensorboard": lambda: TensorBoard(epath.Path(folder), start)})
    trackers.open(pytest.fail)
    return trackers


def write(folder: Path, start: int, steps: list[tuple[int, float]]) -> None:
    trackers = opened(folder, start)
    for step, loss in steps:
        trackers.step(StepLine(step=step, time=0.0, loss=loss))
    trackers.close(completed=True)


def test_tensorboard_reads_what_was_plotted(tmp_path: Path) -> None:
    trackers = opened(tmp_path / "new" / "folder", 0)
    trackers.step(StepLine(step=1, time=1.0, loss=5.5, mfu=0.5, step_seconds=2.0))
    trackers.step(StepLine(step=2, time=2.0, loss=float("nan"), skipped=True, step_seconds=2.0))
    trackers.step(StepLine(step=3, time=3.0, loss=4.5, step_seconds=2.0))
    trackers.held_out(3, 4.75)
    trackers.held_out(3, float("nan"))
    trackers.close(completed=True)
    assert read(tmp_path / "new" / "folder") == {
        "loss": [(1, 5.5), (3, 4.5)],
        "mfu": [(1, 0.5)],
        "skipped": [(1, 0.0), (2, 1.0), (3, 0.0)],
        "step_seconds": [(1, 2.0), (2, 2.0), (3, 2.0)],
        "held_out_loss": [(3, 4.75)],
    }


def test_a_restart_or_a_rollback_replaces_the_steps_that_are_done_again(tmp_path: Path) -> None:
    write(tmp_path, 9, [(1, 5.0), (2, 4.0), (3, 9.0), (2, 4.5), (3, 3.0), (4, 2.0)])
    write(tmp_path, 10, [(3, 3.5), (4, 2.5)])
    assert read(tmp_path)["loss"] == [(1, 5.0), (2, 4.5), (3, 3.5), (4, 2.5)]


def test_an_evaluation_of_a_complete_run_takes_nothing_away(tmp_path: Path) -> None:
    write(tmp_path, 0, [(1, 5.0), (2, 4.0)])
    trackers = opened(tmp_path, 1)
    trackers.held_out(2, 4.5)
    trackers.close(completed=True)
    found = read(tmp_path)
    assert (found["loss"], found["held_out_loss"]) == ([(1, 5.0), (2, 4.0)], [(2, 4.5)])


def test_a_long_run_is_cut_into_parts_that_read_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POINTS_PER_PART", 2)
    write(tmp_path, 0, [(step, float(step)) for step in range(1, 6)])
    assert len(list(tmp_path.iterdir())) == 3
    assert read(tmp_path)["loss"] == [(step, float(step)) for step in range(1, 6)]
