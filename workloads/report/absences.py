"""Lists when slices of a job with `slice_failure: continue` were away, for how long, and why."""

from collections.abc import Iterator
from itertools import groupby

from workloads.report.history import Start
from workloads.report.membership import Membership, SliceState, Spell
from workloads.report.records import Event
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
        if away:
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
        cause=_cause(start, membership, away, _known_since(membership, one, since, present_since)),
    )


def _known_since(membership: Membership, one: int, since: float, present_since: float | None) -> float | None:
    """Return a time at which a slice was present before it was away. `None` if nothing says that it was.

    A leader that is killed soon may not have recorded that the slices began. Then the states that it gave tell.
    """
    if present_since is not None:
        return present_since
    given = (event for events in membership.ledgers.values() for event in events if event.name == "restore")
    return min((event.time for event in given if event.facts.get("donor") == one and event.time <= since), default=None)


def _cause(start: Start, membership: Membership, away: list[Spell], present_since: float | None) -> str:
    """Return why a slice left, and why it did not come back at once, by what its processes recorded."""
    if present_since is None:
        return NOT_THERE
    own = [membership.ledgers[process] for process, one in membership.slice_of.items() if one == away[0].slice]
    hosts = {str(event.facts.get("host")) for events in own for event in events if event.name == "start"}
    said = [(each.time, f"{each.host}: {_first_line(each.cause)}") for each in start.failures if each.host in hosts]
    said += [(event.time, _told(event)) for events in own for event in events if event.name == "stop"]
    last = away[0].until if away[0].state is SliceState.LOST else away[0].since
    before = [words for time, words in sorted(said) if present_since < time <= last]
    after = [words for time, words in sorted(said) if last < time <= away[-1].until]
    went_on = any(events[0].time <= away[0].since and events[-1].time >= away[-1].until for events in own if events)
    left = before[0] if before else CUT_OFF if went_on else UNRECORDED
    return f"{left}; then {after[-1]}" if after and not went_on else left


def _told(stop: Event) -> str:
    return f"{stop.facts.get('cause')}: {_first_line(str(stop.facts.get('message', '')))}"


def _first_line(words: str) -> str:
    return (words.splitlines() or [""])[0]
