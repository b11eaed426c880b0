"""Tests with a replacement of the library, which is not installed here. It has the part of the documented API that is
used, https://docs.wandb.ai/ref/python/sdk/."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from etils import epath

from multislice_run.records.lines import StepLine
from tests.workloads.jobs import small_job
from tests.workloads.training.running import ALONE
from workloads.spec import TrackersSpec, WandbSpec
from workloads.training.runs import Run
from workloads.training.trackers import trackers_of


@dataclass
class FakeRun:
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
