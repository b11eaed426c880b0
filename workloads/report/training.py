"""Returns the progress of a run in its newest attempt, which every command and the page of a report show.

A figure of an earlier attempt is part of it only if it still counts: the last save, and results up to the step that the
newest attempt has reached.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multislice_run.records.events import EventName
from workloads.spec import ExitCode

if TYPE_CHECKING:
    from workloads.report.history import AttemptHistory, History

_MAX_LOSSES = 500
"""Largest number of points of a curve. A screen cannot show more."""


@dataclass(frozen=True)
class Training:
    """Progress of a run in its newest attempt."""

    run: str = ""
    """How the attempt began, such as `new`, `resumed at step 75` or `already complete`. Empty: its state is not
    restored yet."""
    run_id: str = ""
    step: int | None = None
    """Number of steps done. None: the attempt has not restored its state yet."""
    steps: int = 0
    loss: float | None = None
    """Loss of the attempt's last step. None: it has not ended a step, or the step has no finite loss."""
    tokens_per_second: float = 0.0
    step_ms: float = 0.0
    held_out_loss: float | None = None
    checkpoint_step: int | None = None
    """Step of the run's last complete save."""
    losses: tuple[tuple[int, float], ...] = ()
    """Steps with their losses, in ascending order of steps."""
    checkpoint_at: float | None = None
    last_step_at: float | None = None
    """Time at which the attempt's last step ended. None: it has not ended a step."""
    submission: str = ""
    """Uid of the attempt's JobSet. Empty: unknown."""
    restarts: int = 0
    """Number of restarts of the job before the attempt."""
    slices: int = 0
    """Number of slices that the attempt trains on. 0: unknown."""
    asked_slices: int = 0
    """Number of slices that the job asks for. 0: unknown."""
    began: float = 0.0
    """Time at which the first host of the attempt began."""
    ended: bool = False
    """Whether the attempt has recorded its end, so that no record follows."""
    failed: bool = False
    """Whether it has ended before the run was complete."""

    @property
    def attempt(self) -> int | None:
        """Number of the attempt that the figures are of, from 1. None: there are no figures."""
        return None if self.step is None else self.restarts + 1

    def seconds_left(self) -> float:
        """Return the time that the remaining steps take at the pace of the last step."""
        return (self.steps - (self.step or 0)) * self.step_ms / 1000

    def before_restore(self) -> "Training":
        """Return the progress of the next attempt before it has restored its state."""
        kept = self.checkpoint_step, self.checkpoint_at
        return Training(run_id=self.run_id, steps=self.steps, checkpoint_step=kept[0], checkpoint_at=kept[1])

    def words(self, *, running: bool) -> str:
        """Return the progress in words. Empty: there is none, and the job is not `running`."""
        if self.step is not None:
            of = f" of {self.steps}" if self.steps else ""
            attempt = f" in attempt {self.attempt}" if self.restarts else ""
            fewer = f" on {self.slices} of {self.asked_slices} slices" if self.slices < self.asked_slices else ""
            return f"step {self.step}{of}{attempt}{fewer}"
        if self.checkpoint_step is None:
            return "waiting for the first step" if running else ""
        return f"{'restoring, ' if running else ''}last save at step {self.checkpoint_step}"


def summarize_training(history: "History") -> Training:
    """Return the progress of the run."""
    newest = history.starts[-1] if history.starts else None
    if newest is None:
        return Training(run_id=history.folder.name)
    found = _of_attempt(history, newest)
    # The newest attempt may have failed before it opened the run.
    return found if history.attempts[-1] is newest else found.before_restore()


def _of_attempt(history: "History", newest: "AttemptHistory") -> Training:
    from workloads.report.history import LAST

    step = _reached(newest)
    last = newest.steps[-1] if newest.steps and newest.steps[-1].step == step else None
    counts = [event.facts.get("steps") for event in history.events(EventName.RUN_STARTED)]
    saved, saved_at = _last_save(history)
    submission, restarts = newest.attempt or ("", 0)
    return Training(
        run=_beginning(newest),
        run_id=history.folder.name,
        step=step,
        steps=next((steps for steps in reversed(counts) if isinstance(steps, int)), 0),
        loss=last.loss if last else None,
        tokens_per_second=(last.tokens_per_second or 0.0) if last else 0.0,
        step_ms=last.step_seconds * 1000 if last else 0.0,
        held_out_loss=_held_out(history, step),
        checkpoint_step=saved,
        losses=_curve(history, step),
        checkpoint_at=saved_at,
        last_step_at=last.time if last else None,
        submission=submission,
        restarts=restarts,
        slices=newest.slices[0],
        asked_slices=newest.slices[1],
        began=newest.began[0],
        ended=newest.last(EventName.STOP) is not None,
        failed=newest.ending not in (ExitCode.DONE.name, LAST),
    )


def _reached(start: "AttemptHistory") -> int | None:
    """Return the step that an attempt has reached. None: it has not restored its state yet."""
    moves = [(step.time, step.step) for step in start.steps[-1:]]
    # A rollback is a restore after steps.
    moves += [(event.time, int(event.facts["step"])) for event in start.leader if event.name in _POSITIONS]
    return max(moves, key=lambda move: move[0])[1] if moves else None


_POSITIONS = (EventName.RUN_STARTED, EventName.RESTORE)
"""Events whose step is the position of the run."""


def _beginning(start: "AttemptHistory") -> str:
    opened, restored = start.last(EventName.RUN_STARTED), start.last(EventName.RESTORE)
    outcome = str(opened.facts.get("outcome", "")) if opened else "resumed" if restored else ""
    found = opened or restored
    return f"resumed at step {found.facts['step']}" if outcome == "resumed" and found else outcome


def _held_out(history: "History", step: int | None) -> float | None:
    found = [
        event.facts.get("loss") for event in history.events(EventName.EVALUATION) if event.facts["step"] <= (step or 0)
    ]
    return found[-1] if found else None


def _last_save(history: "History") -> tuple[int | None, float | None]:
    """Return step and time of the last save that can be restored. Both are None if there is none."""
    saves: dict[int, float] = {}
    for event in (event for start in history.starts for event in start.leader):
        step = int(event.facts.get("step", 0)) if event.name in _OF_SAVES else 0
        if event.name == EventName.CHECKPOINT_SKIPPED:
            saves.pop(step, None)
        elif event.name == EventName.CHECKPOINT_SAVED:
            saves.pop(step, None)
            saves[step] = event.time
        elif step and event.facts.get("source") != "memory":
            # A leader that was killed has not recorded its last save. It is known once it has been restored.
            saves.setdefault(step, event.time)
    return next(reversed(saves.items()), (None, None))


_OF_SAVES = (EventName.CHECKPOINT_SAVED, EventName.CHECKPOINT_SKIPPED, EventName.RESTORE)


def _curve(history: "History", reached: int | None) -> tuple[tuple[int, float], ...]:
    """Return the losses by step up to `reached`, at most as many as a screen can show, including the newest.

    An attempt replaces the losses of the steps that it repeats.
    """
    curve: dict[int, float] = {}
    for start in history.starts:
        if opened := start.last(EventName.RUN_STARTED):
            curve = {step: loss for step, loss in curve.items() if step <= int(opened.facts["step"])}
        curve |= {step.step: step.loss for step in start.steps if step.loss is not None}
    return _thinned(sorted((step, loss) for step, loss in curve.items() if step <= (reached or 0)))


def _thinned(points: Sequence[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    count = min(len(points), _MAX_LOSSES)
    return tuple(points[(index + 1) * len(points) // count - 1] for index in range(count))
