import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from etils import epath

from multislice_run.records.lines import StepLine
from tests.workloads.hosts import wait_until
from tests.workloads.jobs import small_job
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


def test_one_that_fails_is_dropped_and_the_others_go_on() -> None:
    broken, recorder = Broken(), Recorder()
    served = Trackers({"wandb": lambda: broken, "tensorboard": lambda: recorder})
    (warning,) = serve(served, steps=4, completed=False)
    assert [point.step for point in broken.points] == [1, 2]
    assert broken.closed == []
    assert [point.step for point in recorder.points] == [1, 2, 3, 4]
    assert recorder.closed == [False]
    assert "job.trackers.wandb" in warning
    assert warning.endswith("ConnectionError: quota used up")


def test_one_that_cannot_begin_is_dropped() -> None:
    def refused() -> Recorder:
        raise PermissionError("no such project")

    assert len(serve(Trackers({"wandb": refused}), steps=1, completed=True)) == 1


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
