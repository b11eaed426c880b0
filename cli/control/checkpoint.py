"""The last checkpoint of a job, as the ledger in its storage tells it."""

from collections.abc import Iterator

from etils import epath

from workloads.report.command import NoReport, answering, faults_of_storage, find_run
from workloads.report.history import newest_events
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
    for event in newest_events(run):
        # A start may begin from no checkpoint, at step 0.
        if event.name == "CheckpointSaved" or (event.name == "RunStarted" and event.facts["step"]):
            yield Checkpoint(known=True, step=event.facts["step"], folder=str(run / "checkpoints"))
