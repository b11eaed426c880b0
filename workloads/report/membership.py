"""Finds out which slices trained when, in an attempt of a job with `slice_failure: continue`.

Each process has a ledger of its own there. The leading slice records `SlicesChanged` whenever the slices that train
together change, and another slice takes over when it is lost. So the leader's events are in several ledgers.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise

from workloads.report.records import Event

CHANGED = "SlicesChanged"
_AHEAD_SECONDS = 5.0
"""Time that the clock of one host may be ahead of another's."""


class SliceState(StrEnum):
    """What a slice does for its job."""

    PRESENT = "present"
    JOINING = "joining"
    """Its processes have started, and it has no training state yet."""
    LOST = "lost"


@dataclass(frozen=True)
class Spell:
    """A time in which the state of a slice does not change, in Unix seconds."""

    slice: int
    state: SliceState
    since: float
    until: float


@dataclass(frozen=True)
class Change:
    """Begin of a time in which the same slices train together."""

    time: float
    process: int
    """Process that leads from here on."""
    step: int
    slices: frozenset[int]


@dataclass(frozen=True)
class Membership:
    """The slices of one attempt."""

    asked: int
    """Number of slices that the job asks for."""
    ledgers: Mapping[int, tuple[Event, ...]]
    """Events of each process."""
    changes: tuple[Change, ...]
    """At least one, in order."""
    ended: float
    """Time at which the attempt ended."""

    @cached_property
    def slice_of(self) -> dict[int, int]:
        """The slice of each process that recorded it."""
        starts = {process: find_start(events) for process, events in self.ledgers.items()}
        found = {process: start.facts.get("slice") for process, start in starts.items() if start}
        return {process: one for process, one in found.items() if isinstance(one, int)}

    @cached_property
    def founders(self) -> tuple[int, ...]:
        """The processes that were there when the first slices began to train."""
        first = self.changes[0].time + _AHEAD_SECONDS
        in_time = [process for process, events in self.ledgers.items() if events and _began(events) <= first]
        # A slice may restart within the time that clocks differ.
        restarts: dict[int, int] = {}
        for process in in_time:
            one, count = self.slice_of.get(process, process), _restarts(self.ledgers[process])
            restarts[one] = min(count, restarts.get(one, count))
        return tuple(
            process
            for process in in_time
            if _restarts(self.ledgers[process]) == restarts[self.slice_of.get(process, process)]
        )

    @cached_property
    def leader(self) -> tuple[Event, ...]:
        """The events of whoever led, and the arrivals of states, for which all slices wait."""
        found = [event for process, events in self.ledgers.items() for event in self._as_leader(process, events)]
        # A slice that returns and comes to lead tells that it resumed, but the attempt began only once.
        opened = [event for event in found if event.name == "RunStarted"]
        later = sorted(opened, key=lambda event: event.time)[1:]
        return tuple(sorted((event for event in found if event not in later), key=lambda event: event.time))

    @cached_property
    def spells(self) -> tuple[Spell, ...]:
        """What each slice did from the first change to the end, in the order of slices."""
        return tuple(spell for one in range(self.asked) for spell in _joined(self._spells_of(one)))

    def absent_at(self, time: float) -> int:
        """Return how many slices did not train."""
        times, counts, _ = self._absent
        place = bisect_right(times, time) - 1
        return counts[place] if place >= 0 else 0

    def idle_seconds(self, since: float, until: float) -> float:
        """Return the seconds between two times in which a slice did not train, as a mean over all slices."""
        return max(0.0, self._absent_until(until) - self._absent_until(since)) / self.asked

    def _absent_until(self, time: float) -> float:
        times, counts, sums = self._absent
        place = bisect_right(times, time) - 1
        return sums[place] + counts[place] * (time - times[place]) if place >= 0 else 0.0

    @cached_property
    def _absent(self) -> tuple[list[float], list[int], list[float]]:
        """Times at which the number of absent slices changes, the numbers, and their integral up to then."""
        away = [spell for spell in self.spells if spell.state is not SliceState.PRESENT]
        moves = sorted([*((spell.since, 1) for spell in away), *((spell.until, -1) for spell in away)])
        times, counts, sums = list[float](), list[int](), list[float]()
        for time, move in moves:
            sums.append(sums[-1] + counts[-1] * (time - times[-1]) if times else 0.0)
            counts.append((counts[-1] if counts else 0) + move)
            times.append(time)
        return times, counts, sums

    def _as_leader(self, process: int, events: Sequence[Event]) -> Iterator[Event]:
        begins = [change.time for change in self.changes]
        last = len(begins) - 1
        for event in events:
            place = max(0, bisect_right(begins, event.time) - 1)
            # At the same moment, the earlier leader has ended.
            leads = self.changes[place].process == process
            if event.name == "restore" and "donor" in event.facts or leads and (event.name != "stop" or place == last):
                yield event

    def _spells_of(self, one: int) -> Iterator[Spell]:
        own = [self.ledgers[process] for process, found in self.slice_of.items() if found == one]
        begins = sorted(_began(events) for events in own if events)
        arrivals = [event.time for events in own for event in events if event.name == "restore"]
        lost_at = self.changes[0].time
        for change, end in self._stretches:
            if one not in change.slices:
                lost_at = change.time
                begun = next((time for time in begins if change.time < time < end), end)
                yield Spell(one, SliceState.LOST, change.time, begun)
                yield Spell(one, SliceState.JOINING, begun, end)
            else:
                # The state of a slice that comes to lead arrives before it tells who is present.
                arrived = [time for time in arrivals if lost_at < time <= end]
                # Slices that begin together all wait for their first state.
                joins = change is not self.changes[0]
                ready = max(change.time, max(arrived, default=change.time)) if joins else change.time
                yield Spell(one, SliceState.JOINING, change.time, ready)
                yield Spell(one, SliceState.PRESENT, ready, end)
                lost_at = end

    @property
    def _stretches(self) -> Iterator[tuple[Change, float]]:
        """Yield each change with the time of the next one, or of the end."""
        yield from ((change, following.time) for change, following in pairwise(self.changes))
        yield self.changes[-1], max(self.ended, self.changes[-1].time)


def find_membership(ledgers: Mapping[int, tuple[Event, ...]], ended: float) -> Membership | None:
    """Return the slices of an attempt. `None` if they are one JAX world, which is only there as a whole."""
    found = sorted(
        ((event, process) for process, events in ledgers.items() for event in events if event.name == CHANGED),
        key=lambda each: each[0].time,
    )
    if not found:
        return None
    asked = int(found[0][0].facts["asked"])
    changes = tuple(
        Change(event.time, process, int(event.facts["step"]), _slices(str(event.facts["slices"]), asked))
        for event, process in found
    )
    return Membership(asked, ledgers, changes, ended)


def find_start(events: Sequence[Event]) -> Event | None:
    """Return the event `start` of a process. `None` if it has not recorded it."""
    return next((event for event in events if event.name == "start"), None)


def _restarts(events: Sequence[Event]) -> int:
    """Return how often the slice of a process had restarted."""
    start = find_start(events)
    return int(start.facts.get("slice_restarts", 0)) if start else 0


def _began(events: Sequence[Event]) -> float:
    start = find_start(events)
    began = start.facts.get("began") if start else None
    return events[0].time if began is None else float(began)


def _slices(numbers: str, asked: int) -> frozenset[int]:
    return frozenset(one for one in map(int, numbers.split()) if one < asked)


def _joined(spells: Iterator[Spell]) -> Iterator[Spell]:
    """Yield spells without empty ones, and neighbours of the same state as one."""
    last: Spell | None = None
    for spell in spells:
        if spell.until <= spell.since:
            continue
        if last and last.state is spell.state:
            last = Spell(last.slice, last.state, last.since, spell.until)
            continue
        if last:
            yield last
        last = spell
    if last:
        yield last
