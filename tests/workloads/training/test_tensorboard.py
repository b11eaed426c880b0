import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from etils import epath
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from workloads.training import metrics, tensorboard
from workloads.training.tensorboard import Curves


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Every curve as TensorBoard shows it."""
    found = EventAccumulator(str(folder)).Reload()
    tags = cast(dict[str, list[str]], found.Tags())
    return {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in tags["scalars"]}


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def write(folder: Path, start: int, steps: dict[int, float]) -> None:
    with Curves(epath.Path(folder), start) as curves:
        for step, loss in steps.items():
            curves.step(step, {"loss": loss})


def test_tensorboard_reads_what_was_plotted(tmp_path: Path) -> None:
    with Curves(epath.Path(tmp_path), 0) as curves:
        curves.step(1, {"loss": 5.5, "mfu": 0.5})
        curves.step(2, {"loss": 4.5})
        curves.beside(2, {"held_out_loss": 4.75})
    assert read(tmp_path) == {"loss": [(1, 5.5), (2, 4.5)], "mfu": [(1, 0.5)], "held_out_loss": [(2, 4.75)]}


def test_a_restart_replaces_the_steps_that_it_does_again(tmp_path: Path) -> None:
    write(tmp_path, 9, {1: 5.0, 2: 4.0, 3: 3.0, 4: 2.0})
    write(tmp_path, 10, {3: 3.5, 4: 2.5})
    assert read(tmp_path) == {"loss": [(1, 5.0), (2, 4.0), (3, 3.5), (4, 2.5)]}


def test_so_does_training_that_went_back_within_one_start(tmp_path: Path) -> None:
    with Curves(epath.Path(tmp_path), 0) as curves:
        for step, loss in [(1, 5.0), (2, 4.0), (3, 9.0), (2, 4.5), (3, 3.5)]:
            curves.step(step, {"loss": loss})
    assert read(tmp_path) == {"loss": [(1, 5.0), (2, 4.5), (3, 3.5)]}


def test_an_evaluation_of_a_complete_run_takes_nothing_away(tmp_path: Path) -> None:
    write(tmp_path, 0, {1: 5.0, 2: 4.0})
    with Curves(epath.Path(tmp_path), 1) as curves:
        curves.beside(2, {"held_out_loss": 4.5})
    assert read(tmp_path) == {"loss": [(1, 5.0), (2, 4.0)], "held_out_loss": [(2, 4.5)]}


def test_a_long_run_is_cut_into_parts_that_read_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "ENTRIES_PER_PART", 2)
    write(tmp_path, 0, {step: float(step) for step in range(1, 6)})
    assert len(list(tmp_path.iterdir())) == 3
    assert read(tmp_path) == {"loss": [(step, float(step)) for step in range(1, 6)]}


def test_an_object_holds_all_entries_after_each_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_object(path: epath.Path) -> bool:
        return True

    monkeypatch.setattr(tensorboard, "is_object", is_object)
    monkeypatch.setattr(metrics, "SHORTEST_INTERVAL_SECONDS", 0.01)
    with Curves(epath.Path(tmp_path), 0) as curves:
        curves.step(1, {"loss": 5.0})
        wait_until(lambda: read(tmp_path) == {"loss": [(1, 5.0)]})
        curves.step(2, {"loss": 4.0})
        wait_until(lambda: read(tmp_path) == {"loss": [(1, 5.0), (2, 4.0)]})
