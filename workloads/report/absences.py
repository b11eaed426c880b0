"""Lists when slices of a job with `slice_failure: continue` were away, for how long, and why."""

from collections.abc import Iterator
from itertools import groupby

from workloads.report.history import Start
from workloads.report.membership import Membership, SliceState, Spell
from workloads.spec import Spec

_SECONDS_PER_HOUR = 3600
NOT_THERE = "it was not there when the others began"
CUT_OFF = "it was silent or cut off, and its processes went on"
UNRECORDED = "it left no record: its processes were killed, or cannot reach the storage"


class Absence(Spec):
    """A time in which a slice did not train, until it had the training state again."""

    start: int
    """Number of the attempt."""
    slice: int
    step: int
    """Step after which it was away."""
    since: float
    """Unix time."""
    until: float | None
    """Unix time at which it trained again. `None` if it did not in this attempt."""
    lost_seconds: float
    """Time until its processes ran again."""
    joining_seconds: float
    """Time from then until it had the training state."""
    usd: float | None
    """Price of the slice for this time. `None` if unknown."""
    cause: str

    @property
    def seconds(self) -> float:
        return self.lost_seconds + self.joining_seconds


def absences(start: Start) -> Iterator[Absence]:
    """Yield the absences of all slices in an attempt, oldest first."""
    if not start.membership:
        return
    found = [absence for _, spells in groupby(start.membership.spells, _slice) for absence in _of(start, [*spells])]
    yield from sorted(found, key=lambda absence: (absence.since, absence.slice))


def _slice(spell: Spell) -> int:
    return spell.slice


def _of(start: Start, spells: list[Spell]) -> Iterator[Absence]:
    """Yield the absences of one slice, from all of its spells."""
    assert start.membership
    present_since, away = None, list[Spell]()
    for spell in [*spells, None]:
        if spell and spell.state is not SliceState.PRESENT:
            away.append(spell)
            continue
        # All slices but one get their first state from another one, which is not worth a line.
        if away and (present_since is not None or away[0].state is SliceState.LOST):
            yield _absence(start, start.membership, away, present_since, spell.since if spell else None)
        away = list[Spell]()
        present_since = spell.since if spell else None


def _absence(
    start: Start, membership: Membership, away: list[Spell], present_since: float | None, until: float | None
) -> Absence:
    seconds = {
        state: sum(spell.until - spell.since for spell in away if spell.state is state)
        for state in (SliceState.LOST, SliceState.JOINING)
    }
    since, one = away[0].since, away[0].slice
    price = start.usd_per_hour
    return Absence(
        start=start.number,
        slice=one,
        step=next(change.step for change in reversed(membership.changes) if change.time <= since),
        since=since,
        until=until,
        lost_seconds=seconds[SliceState.LOST],
        joining_seconds=seconds[SliceState.JOINING],
        usd=None if price is None else sum(seconds.values()) * price / membership.asked / _SECONDS_PER_HOUR,
        cause=NOT_THERE if present_since is None else _cause(start, membership, away, present_since),
    )


def _cause(start: Start, membership: Membership, away: list[Spell], present_since: float) -> str:
    """Return why a slice left, by what its processes recorded since it was present."""
    own = [membership.ledgers[process] for process, one in membership.slice_of.items() if one == away[0].slice]
    hosts = {str(event.facts.get("host")) for events in own for event in events if event.name == "start"}
    # What a process records after it ran again is not why it left.
    last = away[0].until if away[0].state is SliceState.LOST else away[0].since
    failures = [each for each in start.failures if each.host in hosts and present_since < each.time <= last]
    if failures:
        return f"{failures[0].host}: {(failures[0].cause.splitlines() or [''])[0]}"
    ends = [event for events in own for event in events if event.name == "stop" and present_since < event.time <= last]
    if ends:
        first = min(ends, key=lambda event: event.time).facts
        return f"{first.get('cause')}: {(str(first.get('message', '')).splitlines() or [''])[0]}"
    went_on = any(events[0].time <= away[0].since and events[-1].time >= away[-1].until for events in own if events)
    return CUT_OFF if went_on else UNRECORDED
