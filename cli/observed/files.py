"""Reads the files of a job's current run: steps, starts, failures, checkpoints and dollars."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from infra.stack.command_lines import installing
from workloads.report.training import Training, summarize_training

if TYPE_CHECKING:
    from etils import epath

    from multislice_run.records.reader import World
    from workloads.report.goodput import Goodput
    from workloads.report.history import AttemptHistory


@dataclass(frozen=True)
class Failure:
    """A failure that a host recorded."""

    at: float
    host: str
    code: int
    cause: str
    """First line of the cause."""
    attempt: int
    """Number of restarts of the job before it."""
    start: int
    """Number of the start that it ended, equal for all hosts. A job that continues after an eviction or a pause has
    several starts in one attempt."""


@dataclass(frozen=True)
class Begun:
    """A start of the job."""

    began: float
    ended: float
    """Time of the last record of the start."""
    cause: str
    submission: str = ""
    """Uid of the JobSet. Empty: no host recorded it."""
    attempt: int = 0
    """Number of restarts of the job before it."""
    killed: bool = False
    """Whether the host that ended first recorded no end."""
    lost: tuple[str, ...] = ()
    """Hosts of which one ended first, if others recorded that they lost it."""


@dataclass(frozen=True)
class Files:
    """Figures of the current run."""

    newest: Training = Training()
    """Progress of the newest attempt with records, which may be of an earlier job. `JobStatus.training` is the job's
    own."""
    starts: tuple[Begun, ...] = ()
    failures: tuple[Failure, ...] = ()
    """Failures of all starts in their order, including starts that did not open a run."""
    goodput: "Goodput | None" = None
    notes: tuple[str, ...] = ()
    world: "World | None" = None
    """Newest attempt that the job's pods agreed on. None: its pods do not stay, have not agreed yet, or it is unknown,
    see `knows_world`."""
    knows_world: bool = False
    """Whether it was read that there is such an attempt or none."""

    def begins(self, submission: str) -> dict[int, float]:
        """Return when each known attempt of a job whose pods stay began. `submission` is the uid of its JobSet."""
        known = {start.attempt: start.began for start in self.starts if start.submission == submission}
        if self.world:
            known[self.world.number] = self.world.began
        return known

    @property
    def usd(self) -> float | None:
        """Dollars spent so far. None: no price is known."""
        return self.goodput.usd if self.goodput else None


UNREAD = Files()
"""Value for a job whose files were not read."""


def read_files(folder: str, run: str | None = None, submission: str = "") -> Files:
    """Return the figures of the job with the folder `folder`, a path or `gs://BUCKET/JOB`. This never fails.

    `run` is the folder name of the job's run. None: the current one. `submission` is the uid of its JobSet.
    """
    from multislice_run.records.reader import read_world
    from workloads.report.command import NoReport, answering, faults_of_storage, find_run
    from workloads.report.goodput import goodput
    from workloads.report.history import read_history

    notes: list[str] = []
    try:
        place = answering(folder)
        world = read_world(place, submission, notes) if submission else None
        agreed = Files(world=world, knows_world=not notes)
        try:
            history = read_history(find_run(place, run))
        except NoReport:
            return replace(agreed, failures=_failures(place, [], notes), notes=tuple(notes))
        failures = _failures(place, [int(start.began[0]) for start in history.attempts], notes)
        return replace(
            agreed,
            newest=summarize_training(history),
            starts=tuple(map(_begun, history.attempts)),
            failures=failures,
            goodput=goodput(history.attempts),
            notes=tuple(f"{folder}: {note}" for note in dict.fromkeys((*notes, *history.notes))),
        )
    except ImportError as fault:
        notes.append(f"{folder}: reading gs:// needs gcsfs ({fault}); install it with {installing('gs')}")
    except faults_of_storage() as fault:
        notes.append(f"{folder}: cannot read its files: {type(fault).__name__}: {fault}")
    return Files(notes=tuple(notes))


def _failures(folder: "epath.Path", starts: Sequence[int], notes: list[str]) -> tuple[Failure, ...]:
    """Return the failures of all hosts. `starts` has the times at which the known starts began, in whole seconds."""
    from multislice_run.records.reader import group_by_start, read_failures

    return tuple(
        Failure(fail.time, fail.host, fail.code, (fail.cause.splitlines() or [""])[0], each.attempt, number)
        for number, hosts in enumerate(group_by_start(read_failures(folder, notes), starts))
        for each, fail in ((each, each.failure) for each in hosts)
    )


def _begun(start: "AttemptHistory") -> Begun:
    from workloads.report.history import KILLED

    submission, attempt = start.attempt or ("", 0)
    return Begun(
        began=start.began[0],
        ended=start.ended,
        cause=start.cause,
        submission=submission,
        attempt=attempt,
        killed=start.ending == KILLED,
        lost=start.lost_hosts,
    )
