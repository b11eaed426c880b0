import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from etils import epath

from multislice_run.records.lines import StepLine
from tests.workloads.hosts import wait_until
from tests.workloads.jobs import small_job
from tests.workloads.training.running import ALONE
from workloads.spec import TrackersSpec, WandbSpec
from workloads.training import trackers
from workloads.training.failures import InvalidSpec
from workloads.training.runs import Run
from workloads.training.runtime import Processes
from workloads.training.trackers import Point, Trackers, require_packages, trackers_of


@dataclass
class Recorder:
    points: list[Point] = field(default_factory=list[Point])
    closed: list[bool] = field(default_factory=list[bool])

    def log(self, point: Point) -> None:
        self.points.append(point)

    def close(self, completed: bool) -> None:
        self.closed.append(completed)


def serve(served: Trackers, steps: int, completed: bool) -> list[str]:
    """Serve all steps, and return the warnings."""
    warnings: list[str] = []
    served.open(warnings.append)
    for step in range(1, steps + 1):
        served.step(StepLine(step=step, time=0.0))
    served.close(completed)
    return warnings


@dataclass
class Broken(Recorder):
    """A tracker that refuses the second point."""

    def log(self, point: Point) -> None:
        super().log(point)
        if len(self.points) == 2:
            raise ConnectionError("quota used up\nat length")


def test_those_that_fail_or_cannot_begin_are_dropped_and_the_others_go_on() -> None:
    def refused() -> Recorder:
        raise PermissionError("no such project")

    broken, recorder = Broken(), Recorder()
    served = Trackers({"wandb": lambda: broken, "tensorboard": lambda: recorder, "other": refused})
    _, warning = serve(served, steps=4, completed=False)
    assert [point.step for point in broken.points] == [1, 2]
    assert broken.closed == []
    assert [point.step for point in recorder.points] == [1, 2, 3, 4]
    assert recorder.closed == [False]
    assert "job.trackers.wandb" in warning
    assert warning.endswith("ConnectionError: quota used up")


def test_one_that_hangs_holds_up_neither_a_step_nor_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "CLOSE_SECONDS", 0.05)
    monkeypatch.setattr(trackers, "WAITING_POINTS", 2)
    forever, warnings = threading.Event(), list[str]()

    class Hanging(Recorder):
        def log(self, point: Point) -> None:
            forever.wait()

    recorder = Recorder()
    served = Trackers({"wandb": Hanging, "tensorboard": lambda: recorder})
    served.open(warnings.append)
    for step in range(1, 9):
        served.step(StepLine(step=step, time=0.0))
        wait_until(lambda step=step: len(recorder.points) == step)
    served.close(completed=True)
    forever.set()
    assert recorder.closed == [True]
    (warning,) = warnings
    assert "job.trackers.wandb" in warning


def test_only_the_leader_has_any_and_only_those_that_the_job_asks_for(tmp_path: Path) -> None:
    run = Run("run-1", epath.Path(tmp_path), 0, {})
    job = small_job(tmp_path)
    asks = job.model_copy(update={"trackers": TrackersSpec(tensorboard=True)})
    for spec, process in ((job, 0), (asks, 1), (asks, 0)):
        assert not serve(trackers_of(spec, run, Processes(process, 2, "host")), steps=1, completed=True)
        assert run.tensorboard.exists() == (spec is asks and process == 0)


def test_a_package_that_the_image_lacks_ends_the_start_before_it_joins_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require_packages(TrackersSpec())
    require_packages(TrackersSpec(tensorboard=True))
    monkeypatch.setattr(trackers, "_PACKAGES", {"tensorboard": "not_there", "wandb": "nor_this"})
    with pytest.raises(InvalidSpec, match=r"trackers.tensorboard needs not_there, job.trackers.wandb needs nor_this"):
        require_packages(TrackersSpec(tensorboard=True, wandb=WandbSpec(project="llm")))


@dataclass
class FakeRun:
    """A run of wandb, which is not installed here, with the used part of its documented API."""

    options: dict[str, Any]
    axes: dict[str, str] = field(default_factory=dict[str, str])
    logged: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    exit_code: int | None = None

    def define_metric(self, name: str, *, step_metric: str) -> None:
        self.axes[name] = step_metric

    def log(self, data: dict[str, float]) -> None:
        self.logged.append(data)

    def finish(self, exit_code: int) -> None:
        self.exit_code = exit_code


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[FakeRun]:
    begun: list[FakeRun] = []

    def init(**options: Any) -> FakeRun:
        begun.append(FakeRun(options))
        return begun[-1]

    module = ModuleType("wandb")
    module.__dict__["init"] = init
    monkeypatch.setitem(sys.modules, "wandb", module)
    return begun


def start(folder: Path, number: int, steps: dict[int, float], *, completed: bool) -> None:
    asked = TrackersSpec(wandb=WandbSpec(project="llm", entity="research"))
    job = small_job(folder).model_copy(update={"trackers": asked})
    run = Run("run-1", epath.Path(folder), number, {"spec": job.model_dump()})
    trackers = trackers_of(job, run, ALONE)
    trackers.open(pytest.fail)
    for step, loss in steps.items():
        trackers.step(StepLine(step=step, time=0.0, loss=loss))
    trackers.held_out(max(steps), 4.75)
    trackers.close(completed=completed)


def test_all_starts_of_a_run_continue_one_run_there_by_the_step_of_training(
    tmp_path: Path, runs: list[FakeRun]
) -> None:
    start(tmp_path, 0, {1: 5.0, 2: 4.0}, completed=False)
    start(tmp_path, 1, {2: 4.5, 3: 3.5}, completed=True)
    first, second = runs
    assert [run.options["id"] for run in runs] == ["run-1", "run-1"]
    assert {run.options["resume"] for run in runs} == {"allow"}
    assert (first.options["project"], first.options["entity"], first.options["name"]) == ("llm", "research", "test")
    assert first.options["config"]["spec"]["preset"] == "tiny"
    assert first.axes == {"*": "step"}
    others = {"skipped": 0.0, "step_seconds": 0.0}
    steps = [{"step": 1, "loss": 5.0, **others}, {"step": 2, "loss": 4.0, **others}]
    assert first.logged == [*steps, {"step": 2, "held_out_loss": 4.75}]
    assert second.logged[0] == {"step": 2, "loss": 4.5, **others}
    assert [run.exit_code for run in runs] == [1, 0]
