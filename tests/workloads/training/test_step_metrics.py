import json
from pathlib import Path
from typing import Any

from etils import epath

from tests.workloads.jobs import small_job
from workloads.training import step_metrics
from workloads.training.resumption import Position
from workloads.training.runs import Run
from workloads.training.runtime import Processes
from workloads.training.step_metrics import Result, StepMetrics


class _Leads:
    """The only process of a slice."""

    leads, host = True, "host-0"


def metrics_of(storage: Path) -> StepMetrics:
    run: Any = type("Opened", (), {"steps": epath.Path(storage), "start": 0})
    processes: Any = _Leads()
    opened: Run = run
    known: Processes = processes
    return StepMetrics(small_job(storage), opened, known)


def add(metrics: StepMetrics, step: int, at: float, *, writes: bool) -> None:
    metrics.add(Position(step - 1, step - 1), Result(1.0, 0.0, 1.0, False, at), 1.0, 0.0, writes)


def steps_in(storage: Path) -> list[int]:
    return [json.loads(line)["step"] for path in sorted(storage.glob("*.jsonl")) for line in path.open()]


def test_a_slice_that_takes_over_writes_the_last_steps_of_the_leader_before_it(tmp_path: Path) -> None:
    with metrics_of(tmp_path) as metrics:
        old = step_metrics.KEPT_SECONDS + 5
        for step, at in ((1, 0.0), (2, old), (3, old + 1)):
            add(metrics, step, at, writes=False)
        add(metrics, 4, old + 2, writes=True)
        add(metrics, 5, old + 3, writes=True)
    assert steps_in(tmp_path) == [2, 3, 4, 5]


def test_a_slice_writes_what_it_has_when_another_one_takes_over(tmp_path: Path) -> None:
    with metrics_of(tmp_path) as metrics:
        add(metrics, 1, 0.0, writes=False)
        add(metrics, 2, 1.0, writes=False)
        metrics.write_kept()
        add(metrics, 3, 2.0, writes=False)
    assert steps_in(tmp_path) == [1, 2]


def test_a_slice_that_never_leads_writes_no_steps(tmp_path: Path) -> None:
    with metrics_of(tmp_path) as metrics:
        add(metrics, 1, 0.0, writes=False)
    assert steps_in(tmp_path) == []
