"""The last checkpoint of a job, as the ledger in its storage tells it."""

import json
from collections.abc import Iterator
from typing import Any

from etils import epath

from workloads.report.command import NoReport, answering, faults_of_storage, find_run
from workloads.spec import Spec


class Checkpoint(Spec):
    """Of the job's current run."""

    known: bool
    """Whether its storage could be read."""
    step: int | None = None
    """None: there is none."""
    folder: str | None = None

    def __str__(self) -> str:
        if not self.known:
            return "its storage cannot be read, so its last checkpoint is not known"
        if self.step is None:
            return "it has saved no checkpoint"
        return f"its last checkpoint is step {self.step} in {self.folder}"


def last_checkpoint(job_folder: str) -> Checkpoint:
    """Of the job that keeps its runs in this folder; never fails."""
    try:
        run = find_run(answering(job_folder))
        return next(_saved(run), Checkpoint(known=True))
    except NoReport:
        return Checkpoint(known=True)
    except (ImportError, *faults_of_storage()):
        return Checkpoint(known=False)


def _saved(run: epath.Path) -> Iterator[Checkpoint]:
    """From the newest word of the leaders of all starts on."""
    ledgers = [path for path in (run / "ledger").iterdir() if path.name.endswith("-0.jsonl")]
    for ledger in sorted(ledgers, key=lambda path: int(path.name.split("-")[0]), reverse=True):
        for line in reversed(ledger.read_text().splitlines()):
            event = _event(line)
            folder = str(run / "checkpoints")
            if event.get("event") == "CheckpointSaved":
                yield Checkpoint(known=True, step=event.get("step"), folder=folder)
            elif event.get("event") == "RunStarted" and event.get("step"):
                yield Checkpoint(known=True, step=event["step"], folder=folder)


def _event(line: str) -> dict[str, Any]:
    """A crash may have cut a line short."""
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}
