"""Calculates where the wall time of a run went and what it cost.

The rules are in docs/how-to/metrics.md. A run is cut at the times of its leader's events, and each piece has one cause,
so the pieces add up to the whole. Between two submissions no job exists, and that time does not count. The pieces of
an attempt, and the downtime after it, are priced at what all slices cost in that attempt.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import fsum, inf

from multislice_run.records.events import ENDS_A_PIECE, Cause, EventName
from workloads.report.history import LAST, AttemptHistory
from workloads.spec import ExitCode, Spec

ENDINGS = {LAST: Cause.OTHER, **{code.name: code.meaning.last for code in ExitCode}}
"""Cause of an attempt's last piece, by how the attempt ended. For other endings it is lost work."""

NO_LOSS = (ExitCode.DONE.name, LAST)
"""Endings of an attempt after which no step is repeated."""

ROLLBACK = "a rollback"
SKIPPED = "a step was skipped"
"""The one loss of work that is neither a rollback nor the end of an attempt."""

_SECONDS_PER_HOUR = 3600
_OWN_LINES = (Cause.LOST, Cause.HUNG, Cause.DOWN)
"""Causes that have one part for each thing they came after. For other causes, see `Loss`."""


class Part(Spec):
    """Time and money for one cause."""

    cause: Cause
    after: str
    """What it came after: the ending of an attempt, a rollback or a skipped step. Empty if nothing went wrong."""
    seconds: float
    usd: float | None
    """Cost of the attempts whose price is known. `None` if no price is known."""

    @property
    def name(self) -> str:
        return f"{self.cause} after {self.after}" if self.after else str(self.cause)


class Spent(Spec):
    """The whole time of a run or an attempt, by cause."""

    seconds: float
    usd: float | None
    parts: tuple[Part, ...]

    @property
    def productive(self) -> float:
        seconds = sum(part.seconds for part in self.parts if part.cause is Cause.PRODUCTIVE)
        return seconds / self.seconds if self.seconds else 0.0


class StartSpent(Spent):
    """Time and money of one attempt, until the next one begins."""

    number: int
    """Number of attempts before it that opened the run, as in the names of their files. People see one more."""
    opened: bool
    """Whether it opened the run. If not, `number` is that of the next attempt that did."""
    ending: str
    usd_per_hour: float | None
    """Price of all slices. `None` if unknown."""

    @property
    def name(self) -> str:
        return f"{'Attempt' if self.opened else 'Before attempt'} {self.number + 1}"


class Loss(Spec):
    """The whole cost of one kind of fault, under every cause."""

    after: str
    """The fault: the ending of the attempts that it hit, a rollback or a skipped step."""
    lost_work_seconds: float
    hung_seconds: float
    down_seconds: float
    restart_seconds: float
    """Time of saves before exit, of attempts that did not open the run, and until the next attempt trains again."""
    seconds: float
    usd: float | None


class Goodput(Spent):
    """Time and money of a run, from the start of its first host to its last known event."""

    starts: tuple[StartSpent, ...]
    losses: tuple[Loss, ...]
    """Losses by kind of fault, the most expensive first."""

    @property
    def unpriced(self) -> tuple[int, ...]:
        """Numbers, from 1, of the attempts whose price is unknown. No sum of money includes them."""
        return tuple(sorted({start.number + 1 for start in self.starts if start.usd_per_hour is None}))


@dataclass(frozen=True)
class _Piece:
    """A piece of time with one cause, which ends at `until`."""

    until: float
    cause: Cause
    after: str = ""


@dataclass(frozen=True)
class _Spell:
    """A piece with its length and the index of its attempt."""

    place: int
    piece: _Piece
    seconds: float
    usd: float | None


def goodput(starts: Sequence[AttemptHistory]) -> Goodput:
    """Return what the time of `starts`, oldest first, was spent on."""
    spells = [*_spells(starts)]
    by_start = [
        StartSpent(
            **dict(_sum([spell for spell in spells if spell.place == place])),
            number=start.number,
            opened=start.opened,
            ending=start.ending,
            usd_per_hour=start.usd_per_hour,
        )
        for place, start in enumerate(starts)
    ]
    return Goodput(**dict(_sum(spells)), starts=tuple(by_start), losses=_losses(spells))


def lost_steps(starts: Sequence[AttemptHistory]) -> dict[tuple[int, int], str]:
    """Return the steps that trained nothing because they were repeated later or skipped.

    Keys are the attempt's number and the index of its line; values say what the step was lost after.
    """
    lost: dict[tuple[int, int], str] = {}
    again: list[tuple[int, str]] = []
    """Later repetitions, the soonest last: the first step that is repeated, and the reason."""

    def go_back(step: int, after: str) -> None:
        while again and again[-1][0] >= step:
            again.pop()
        again.append((step, after))

    for start in reversed([start for start in starts if start.opened]):
        # Steps of this attempt are repeated after one of its rollbacks, or after its end.
        again = [(step, start.ending if after == ROLLBACK else after) for step, after in again]
        for place, step in reversed([*enumerate(start.steps)]):
            after = next((after for first, after in reversed(again) if step.step >= first), None)
            if step.skipped or after:
                lost[start.number, place] = SKIPPED if step.skipped else str(after)
            go_back(step.step, ROLLBACK)
        if resumed := start.last(EventName.RUN_STARTED):
            go_back(int(resumed.facts["step"]) + 1, ROLLBACK)
    return lost


def _spells(starts: Sequence[AttemptHistory]) -> Iterator[_Spell]:
    lost = lost_steps(starts)
    now = starts[0].began[0] if starts else 0.0
    for place, start in enumerate(starts):
        before = starts[place - 1].ending if place else ""
        if place and _is_resubmitted(starts[place - 1], start):
            before, now = "", max(now, start.began[0])
        following = starts[place + 1] if place + 1 < len(starts) else None
        for piece in _pieces(start, "" if before in NO_LOSS else before, following, lost):
            # The clocks of hosts differ. A time before the previous one makes a piece of zero length.
            if piece.until > now:
                since, now = now, piece.until
                seconds = now - since
                usd = None if start.usd_per_hour is None else seconds * start.usd_per_hour / _SECONDS_PER_HOUR
                yield _Spell(place, piece, seconds, usd)


def _pieces(
    start: AttemptHistory, before: str, following: AttemptHistory | None, lost: dict[tuple[int, int], str]
) -> Iterator[_Piece]:
    """Yield the pieces of an attempt that came after the ending `before`, until the attempt `following` it."""
    yield _Piece(start.began[1], Cause.WAITING, before)
    ready = next((event.time for event in start.leader if event.name == EventName.RUN_STARTED), inf)
    pieces: list[_Piece] = []
    for event in start.leader:
        if cause := ENDS_A_PIECE.get(event.name):
            after = ROLLBACK if cause is Cause.RESTORE else ""
            pieces.append(_Piece(event.time, cause, before if event.time <= ready else after))
    ends = sorted([*(piece.until for piece in pieces), *(step.time for step in start.steps)])
    for place, step in enumerate(start.steps):
        if lost_after := lost.get((start.number, place)):
            pieces.append(_Piece(step.time, Cause.LOST, lost_after))
        else:
            # Times are rounded, so that a step may seem to begin before what precedes it has ended.
            earlier = bisect_left(ends, step.time)
            began = step.time - step.step_seconds
            if step.local_save_seconds:
                pieces.append(_Piece(max([*ends[earlier - 1 : earlier], began]), Cause.SAVE))
            pieces.append(_Piece(max([*ends[earlier - 1 : earlier], began + step.host_seconds]), Cause.INPUT))
            pieces.append(_Piece(step.time, Cause.PRODUCTIVE))
    yield from sorted(pieces, key=lambda piece: piece.until)
    last = ENDINGS.get(start.ending, Cause.LOST)
    if last is Cause.SAVE and not start.steps:
        # A host that gets SIGTERM before its first step has nothing to save.
        last = Cause.START if ready == inf else Cause.COMPILE
    if not start.opened:
        # It had nothing to lose or save.
        last = Cause.HUNG if last is Cause.HUNG else Cause.START
    yield _Piece(start.ended, last, "" if start.ending in NO_LOSS else start.ending)
    if following and not _is_resubmitted(start, following):
        yield _Piece(following.began[0], Cause.DOWN, start.ending)


def _is_resubmitted(before: AttemptHistory, after: AttemptHistory) -> bool:
    """Return whether the job of `before` had ended or was deleted, and `after` belongs to another one."""
    return None not in (before.submission, after.submission) and before.submission != after.submission


def _sum(spells: Sequence[_Spell]) -> Spent:
    order = [*Cause]

    def line(spell: _Spell) -> tuple[int, str]:
        cause = spell.piece.cause
        return order.index(cause), spell.piece.after if cause in _OWN_LINES else ""

    parts = [
        Part(cause=order[place], after=after, seconds=_seconds(group), usd=_usd(group))
        for (place, after), group in _grouped(spells, line)
    ]
    return Spent(seconds=_seconds(spells), usd=_usd(spells), parts=tuple(parts))


def _losses(spells: Sequence[_Spell]) -> tuple[Loss, ...]:
    kept = [(Cause.DOWN, ending) for ending in NO_LOSS]
    charged = [spell for spell in spells if spell.piece.after and (spell.piece.cause, spell.piece.after) not in kept]
    found = [
        Loss(
            after=after,
            lost_work_seconds=_seconds(group, Cause.LOST),
            hung_seconds=_seconds(group, Cause.HUNG),
            down_seconds=_seconds(group, Cause.DOWN),
            restart_seconds=_seconds(group, *set(Cause) - {*_OWN_LINES}),
            seconds=_seconds(group),
            usd=_usd(group),
        )
        for after, group in _grouped(charged, lambda spell: spell.piece.after)
    ]
    return tuple(sorted(found, key=lambda loss: (loss.usd or 0.0, loss.seconds), reverse=True))


def _grouped[Key: (str, tuple[int, str])](
    spells: Iterable[_Spell], key: Callable[[_Spell], Key]
) -> Iterator[tuple[Key, list[_Spell]]]:
    return ((name, [*group]) for name, group in groupby(sorted(spells, key=key), key))


def _seconds(spells: Iterable[_Spell], *causes: Cause) -> float:
    return fsum(spell.seconds for spell in spells if spell.piece.cause in (causes or Cause))


def _usd(spells: Iterable[_Spell]) -> float | None:
    known = [spell.usd for spell in spells if spell.usd is not None]
    return fsum(known) if known else None
