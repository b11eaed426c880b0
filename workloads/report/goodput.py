"""Where the wall time of a run went.

Owns the causes and the rules by which time is counted for them (docs/metrics.md). Pure: a run is cut at the moments
that its leader recorded, each piece counts for one cause, and so the pieces add up to the whole.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from workloads.report.history import LAST, Event, Start, Step
from workloads.spec import ExitCode


class Cause(StrEnum):
    """What time was spent on."""

    PRODUCTIVE = "productive steps"
    INPUT = "steps waiting for the host"
    LOST = "lost work"
    SAVE = "saves"
    EVALUATION = "evaluation"
    COMPILE = "compilation"
    RESTORE = "restore"
    START = "start of hosts"
    WAITING = "waiting for hosts"
    HUNG = "hung"
    DOWN = "down"
    OTHER = "other"


ENDS_A_PIECE = {
    "start": Cause.START,
    "restore": Cause.RESTORE,
    "compile": Cause.COMPILE,
    "save": Cause.SAVE,
    "Evaluation": Cause.EVALUATION,
    # At the end, and after SIGTERM, the loop waits until the last checkpoint is complete.
    "RunSummary": Cause.SAVE,
}
"""The event that a piece of the leader's time ends with, and what the piece was spent on."""

ENDINGS = {
    ExitCode.DONE.name: Cause.OTHER,
    ExitCode.PREEMPTED.name: Cause.SAVE,
    ExitCode.HANG.name: Cause.HUNG,
    LAST: Cause.OTHER,
}
"""What a start's last piece was spent on, by how it ended; otherwise it is work that was lost."""


@dataclass(frozen=True)
class Part:
    """Seconds for one cause."""

    cause: Cause
    detail: str
    """How the start before ended, for time that the run was down."""
    seconds: float

    @property
    def name(self) -> str:
        return f"{self.cause} after {self.detail}" if self.detail else str(self.cause)


@dataclass(frozen=True)
class Goodput:
    """The whole time of a run, from the first host's begin to the last that is known."""

    seconds: float
    parts: tuple[Part, ...]

    @property
    def productive(self) -> float:
        """Share of productive steps."""
        seconds = sum(part.seconds for part in self.parts if part.cause is Cause.PRODUCTIVE)
        return seconds / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class _Piece:
    until: float
    cause: Cause
    detail: str = ""


def goodput(starts: Sequence[Start]) -> Goodput:
    """What the time of `starts`, in their order, was spent on."""
    if not starts:
        return Goodput(0.0, ())
    spent: dict[tuple[Cause, str], float] = defaultdict(float)
    began = now = starts[0].began[0]
    for piece in _pieces(starts):
        # Clocks of hosts differ: a moment before the one before it ends a piece of no length.
        until = max(now, piece.until)
        spent[piece.cause, piece.detail] += until - now
        now = until
    order = list(Cause)
    parts = sorted(spent.items(), key=lambda part: (order.index(part[0][0]), part[0][1]))
    return Goodput(now - began, tuple(Part(*name, seconds) for name, seconds in parts if seconds > 0))


def lost_steps(starts: Sequence[Start]) -> set[tuple[int, int]]:
    """Start and place among its lines of the steps that trained nothing: done again later, or skipped."""
    lost: set[tuple[int, int]] = set()
    again = inf
    for start in reversed(starts):
        for place, step in reversed([*enumerate(start.steps)]):
            if step.skipped or step.step >= again:
                lost.add((start.number, place))
            again = min(again, step.step)
        if resumed := start.last("RunStarted"):
            again = min(again, int(resumed.facts["step"]) + 1)
    return lost


def _pieces(starts: Sequence[Start]) -> Iterator[_Piece]:
    lost = lost_steps(starts)
    for number, start in enumerate(starts):
        if number:
            yield _Piece(start.began[0], Cause.DOWN, starts[number - 1].ending)
        yield _Piece(start.began[1], Cause.WAITING)
        events = [piece for event in start.leader for piece in _of_event(event)]
        steps = [
            piece for place, step in enumerate(start.steps) for piece in _of_step(step, (start.number, place) in lost)
        ]
        yield from sorted([*events, *steps], key=lambda piece: piece.until)
        yield _Piece(start.ended, ENDINGS.get(start.ending, Cause.LOST))


def _of_event(event: Event) -> Iterator[_Piece]:
    if cause := ENDS_A_PIECE.get(event.name):
        yield _Piece(event.time, cause)


def _of_step(step: Step, lost: bool) -> Iterator[_Piece]:
    if lost:
        yield _Piece(step.time, Cause.LOST)
        return
    yield _Piece(step.time - step.seconds + step.host_seconds, Cause.INPUT)
    yield _Piece(step.time, Cause.PRODUCTIVE)
