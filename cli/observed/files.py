"""Reads the files of a job's current run: steps, starts, failures, checkpoints and dollars."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etils import epath

    from workloads.report.goodput import Goodput
    from workloads.report.history import History, Start

_MOST_LOSSES = 500
"""Largest number of points of a curve. A screen cannot show more."""


@dataclass(frozen=True)
class Training:
    """Progress of training."""

    run: str = ""
    """Begin of the current start, such as `new`, `resumed at step 75` or `already complete`."""
    run_id: str = ""
    step: int = 0
    steps: int = 0
    loss: float | None = None
    tokens_per_second: float = 0.0
    step_ms: float = 0.0
    held_out_loss: float | None = None
    checkpoint_step: int | None = None
    losses: tuple[tuple[int, float], ...] = ()
    """Steps with their losses, in ascending order of steps."""

    def seconds_left(self) -> float:
        """Return the time that the remaining steps take at the pace of the last step."""
        return (self.steps - self.step) * self.step_ms / 1000


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

    number: int
    began: float
    ended: float
    """Time of the last record of the start."""
    ending: str
    """Name of the exit code with which it ended."""
    cause: str
    first_step: int | None
    last_step: int | None
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

    training: Training = Training()
    last_step_at: float | None = None
    starts: tuple[Begun, ...] = ()
    failures: tuple[Failure, ...] = ()
    """Failures of all starts in their order, including starts that did not open a run."""
    goodput: "Goodput | None" = None
    notes: tuple[str, ...] = ()

    @property
    def usd(self) -> float | None:
        """Dollars spent so far. None: no price is known."""
        return self.goodput.usd if self.goodput else None


UNREAD = Files()
"""Value for a job whose files were not read."""


def read_files(folder: str) -> Files:
    """Return the figures of the job with the folder `folder`, a path or `gs://BUCKET/JOB`. This never fails."""
    from workloads.report.command import NoReport, answering, faults_of_storage, find_run
    from workloads.report.goodput import goodput
    from workloads.report.history import read_history

    notes: list[str] = []
    try:
        place = answering(folder)
        try:
            history = read_history(find_run(place))
        except NoReport:
            return Files(failures=_failures(place, [], notes), notes=tuple(notes))
        steps = [step for start in history.starts for step in start.steps]
        return Files(
            training=summarize_training(history),
            last_step_at=max((step.time for step in steps), default=None),
            starts=tuple(map(_begun, history.attempts)),
            failures=_failures(place, [int(start.began[0]) for start in history.attempts], notes),
            goodput=goodput(history.attempts),
            notes=(*notes, *history.notes),
        )
    except ImportError as fault:
        notes.append(f"{folder}: reading gs:// needs the package gcsfs, which cannot be imported: {fault}")
    except faults_of_storage() as fault:
        notes.append(f"{folder}: cannot read its files: {type(fault).__name__}: {fault}")
    return Files(notes=tuple(notes))


def read_runs(folder: str) -> "Iterator[History]":
    """Yield the history of each run of the job with the folder `folder`. Raise an error of storage, or ImportError."""
    from workloads.report.command import answering
    from workloads.report.history import read_history

    runs = answering(folder) / "runs"
    for run in sorted(runs.iterdir()) if runs.exists() else ():
        yield read_history(run)


def _failures(folder: "epath.Path", starts: Sequence[int], notes: list[str]) -> tuple[Failure, ...]:
    """Return the failures of all hosts. `starts` has the times at which the known starts began, in whole seconds."""
    from workloads.report.records import group_by_start, read_failures

    return tuple(
        Failure(fail.time, fail.host, fail.code, (fail.cause.splitlines() or [""])[0], fail.attempt, number)
        for number, hosts in enumerate(group_by_start(read_failures(folder, notes), starts))
        for fail in (each.failure for each in hosts)
    )


def _begun(start: "Start") -> Begun:
    from workloads.report.history import KILLED

    steps = [step.step for step in start.steps]
    first, last = min(steps, default=None), max(steps, default=None)
    submission, attempt = start.attempt or ("", 0)
    return Begun(
        number=start.number,
        began=start.began[0],
        ended=start.ended,
        ending=start.ending,
        cause=start.cause,
        first_step=first,
        last_step=last,
        submission=submission,
        attempt=attempt,
        killed=start.ending == KILLED,
        lost=start.lost_hosts,
    )


def summarize_training(history: "History") -> Training:
    """Return the progress of the run, with the losses of the steps that count."""
    newest = history.starts[-1] if history.starts else None
    opened = newest.last("RunStarted") if newest else None
    last = next((step for start in reversed(history.starts) for step in reversed(start.steps)), None)
    evaluation = next((event for start in reversed(history.starts) if (event := start.last("Evaluation"))), None)
    saved = [event.facts["step"] for start in history.starts if (event := start.last("CheckpointSaved"))]
    counts = [event.facts.get("steps") for start in history.starts if (event := start.last("RunStarted"))]
    resumed = int(opened.facts["step"]) if opened else 0
    outcome = str(opened.facts.get("outcome", "")) if opened else ""
    began = newest.steps[-1].step if newest and newest.steps else resumed
    return Training(
        run=f"resumed at step {resumed}" if outcome == "resumed" else outcome,
        run_id=history.folder.name,
        step=began,
        steps=next((steps for steps in reversed(counts) if isinstance(steps, int)), 0),
        loss=last.loss if last else None,
        tokens_per_second=(last.tokens_per_second or 0.0) if last else 0.0,
        step_ms=last.seconds * 1000 if last else 0.0,
        held_out_loss=evaluation.facts.get("loss") if evaluation else None,
        checkpoint_step=saved[-1] if saved else None,
        losses=_curve(history),
    )


def _curve(history: "History") -> tuple[tuple[int, float], ...]:
    """Return the losses by step, at most as many as a screen can show, including the newest.

    A start replaces the losses of the steps that it repeats.
    """
    curve: dict[int, float] = {}
    for start in history.starts:
        if opened := start.last("RunStarted"):
            curve = {step: loss for step, loss in curve.items() if step <= int(opened.facts["step"])}
        curve |= {step.step: step.loss for step in start.steps if step.loss is not None}
    points, count = sorted(curve.items()), min(len(curve), _MOST_LOSSES)
    return tuple(points[(index + 1) * len(points) // count - 1] for index in range(count))
