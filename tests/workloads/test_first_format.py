"""A run that the first version of this project wrote is read, reported and continued.

`first_format` has what that version wrote for 26 steps in one process. Never write it again with a newer version.
"""

import json
import shutil
from pathlib import Path

import pytest
from etils import epath

from multislice_run.records.events import EventName
from workloads.report.goodput import Cause, goodput
from workloads.report.history import read_history
from workloads.report.training import summarize_training
from workloads.spec import JobSpec
from workloads.training.runs import DataRecord, manifest, open_run
from workloads.training.runtime import Processes

FIRST = Path(__file__).parent / "first_format"
RUN = FIRST / "runs" / "first"


def test_its_steps_and_events_are_reported_under_their_present_names() -> None:
    assert '"event": "RunStarted"' in (RUN / "ledger" / "0-0.jsonl").read_text()
    history = read_history(epath.Path(RUN))
    (attempt,) = history.attempts
    assert {event.name for event in attempt.leader} <= {*EventName}
    assert [step.step for step in attempt.steps] == list(range(1, 27))
    spent, training = goodput(history.attempts), summarize_training(history)
    assert {Cause.COMPILE, Cause.PRODUCTIVE, Cause.SAVE, Cause.EVALUATION} <= {part.cause for part in spent.parts}
    assert spent.productive == pytest.approx(0.34, abs=0.01)
    assert (training.run, training.steps, training.checkpoint_step) == ("new", 26, 26)


def test_the_same_job_continues_it(tmp_path: Path) -> None:
    shutil.copytree(FIRST, tmp_path, dirs_exist_ok=True)
    written = json.loads((RUN / "manifest.json").read_text())
    job = JobSpec.model_validate(written["spec"] | {"storage": {"path": str(tmp_path), "existing_run": "resume"}})
    data = DataRecord(data_digest=written["data_digest"], data_order="order", datasets=[])
    run = open_run(
        job, "second", manifest(job, data, "image", {}, {"attention": "reference"}), Processes(0, 1, "host-0")
    )
    assert (run.id, run.start) == ("first", 1)
