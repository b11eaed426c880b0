"""Searches quotas, borrowing limits, numbers of slices and spares for those with the cheapest useful chip-hour.

From the present values it always tries the neighbours of the best candidate whose neighbours it has not tried yet: one
value one step up or down, or one up and another one down.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import count, permutations
from math import inf, prod

from infra.review.admission.situation import Queue
from infra.review.replay.fleet import Fleet
from infra.review.replay.results import MEASURES, Summary, span, summarize
from infra.review.replay.simulation import Conditions, replay
from infra.review.replay.trace import Trace, places
from infra.review.table import Answer, Table

type Values = tuple[int | None, ...]
"""A value for each axis. `None`: no limit."""
type _Score = tuple[int, float, float]
"""Starved jobs, hours of the p90 of waits above the highest one, and cost. The smallest is best."""
_BEST = 3
MAX_SECONDS = 45.0
_MAX_VALUES = 1000
_AXIS = re.compile(
    r"(?:teams\.(?P<team>[^.]+)\.quota\.(?P<group>[^.]+)(?P<limit>\.borrowing_limit)?|slices\.(?P<slices>[^.]+)\.count"
    r"|(?P<spares>spares))=(?P<values>(?:\d+|none)(?:,(?:\d+|none))*|(?P<low>\d+)\.\.(?P<high>\d+)(?:/(?P<step>[1-9]\d*))?)"
)
_FORM = "teams.TEAM.quota.GROUP, teams.TEAM.quota.GROUP.borrowing_limit, slices.GROUP.count or spares"


_OF_CANDIDATES = (
    "cost per useful chip-hour",
    "jobs that end",
    "starved jobs",
    "wait, p90",
    "idle chip-hours",
    "preemptions",
)


class BoundsError(ValueError):
    """Raised for bounds that cannot be searched. The message says why."""


@dataclass(frozen=True)
class Axis:
    """One value of a stack file, and what it may be."""

    path: str
    team: str
    flavor: str
    limit: bool
    values: Values
    current: int | None


@dataclass(frozen=True)
class Candidate:
    """A fleet that was tried."""

    changes: Mapping[str, tuple[int | None, int | None]]
    """Values before and after, by their path in the stack file."""
    summary: Summary


@dataclass(frozen=True)
class Searched:
    """The result of a search."""

    tried: int
    possible: int
    """Number of combinations of values, also those whose quotas are larger than their groups."""
    seconds: float
    best: tuple[Candidate, ...]
    """The best three, the best one first: those on which the fewest jobs starve, then those with the shortest waits
    above the highest one, then the cheapest. Without a known price, the one with the largest useful share of chips."""


def axes(written: Sequence[str], fleet: Fleet, spares: int) -> list[Axis]:
    """Return what to search.

    Raises:
        BoundsError: a bound has another form or no values, or names what the fleet does not have or another bound does.
    """
    found = [_axis(each, fleet, spares) for each in written]
    paths = [axis.path for axis in found]
    if twice := sorted({path for path in paths if paths.count(path) > 1}):
        raise BoundsError(f"expected each path once, got {twice[0]} again; write one list of its values")
    return found


def _axis(written: str, fleet: Fleet, spares: int) -> Axis:
    found = _AXIS.fullmatch(written.replace(" ", ""))
    if not found:
        raise BoundsError(f"expected PATH=LOW..HIGH/STEP or PATH=VALUE,VALUE with a path {_FORM}, got {written!r}")
    path, team, group = written.partition("=")[0].strip(), found["team"] or "", found["group"] or found["slices"]
    flavor = next((flavor for flavor, each in fleet.groups.items() if each.name == group), "")
    quotas = {quota.flavor: quota for queue in fleet.queues if queue.name == team for quota in queue.flavors}
    if (group and not flavor) or (team and flavor not in quotas):
        names = ", ".join(each.name for each in fleet.groups.values())
        raise BoundsError(f"expected a team of {fleet.name} with a quota of one of its groups {names}, got {path}")
    if team:
        current = quotas[flavor].borrowing_limit if found["limit"] else quotas[flavor].nominal
    else:
        current = fleet.groups[flavor].chips // fleet.groups[flavor].slice_chips if flavor else spares
    if found["low"] is None:
        listed = [None if each == "none" else int(each) for each in found["values"].split(",")]
    else:
        step = int(found["step"] or (fleet.groups[flavor].slice_chips if team else 1))
        listed = [*range(int(found["low"]), int(found["high"]) + 1, step)[: _MAX_VALUES + 1]]
    if not 1 <= len(listed) <= _MAX_VALUES:
        raise BoundsError(f"expected 1 to {_MAX_VALUES} values from the lowest to the highest one, got {written!r}")
    if None in listed and not found["limit"]:
        raise BoundsError(f"expected numbers for {path}, because only a borrowing limit may be none")
    values = sorted({*listed, current}, key=lambda each: inf if each is None else each)
    return Axis(path, team, flavor, bool(found["limit"]), tuple(values), current)


def search(
    trace: Trace,
    fleet: Fleet,
    conditions: Conditions,
    bounds: Sequence[Axis],
    p90_hours: float | None,
    starved_hours: float,
) -> Searched:
    """Return the best candidates on which no job starves and whose p90 of waits is at most `p90_hours`; if there are
    none, the next to that. A job that waits for `starved_hours` is starved."""
    began, turns, seen = time.monotonic(), count(), set[Values]()
    ranked: list[tuple[_Score, int, Candidate]] = []
    frontier: list[tuple[_Score, int, Values]] = []

    def consider(values: Values) -> None:
        seen.add(values)
        changed = _changed(fleet, conditions, dict(zip(bounds, values, strict=True)))
        if changed is None:
            return
        summary = summarize(replay(trace, *changed, places(trace, changed[0])), starved_hours)
        score, turn = _score(summary, p90_hours), next(turns)
        ranked.append((score, turn, Candidate(_changes(fleet, conditions, *changed), summary)))
        ranked.sort(key=lambda each: each[:2])
        # Summaries name all starved jobs, so only the best are kept.
        del ranked[_BEST:]
        heappush(frontier, (score, turn, values))

    consider(tuple(axis.current for axis in bounds))
    while frontier and time.monotonic() - began < MAX_SECONDS:
        for values in _neighbours(bounds, heappop(frontier)[2]):
            if values not in seen and time.monotonic() - began < MAX_SECONDS:
                consider(values)
    best = tuple(candidate for *_, candidate in ranked)
    return Searched(next(turns), prod(len(axis.values) for axis in bounds), time.monotonic() - began, best)


def _score(found: Summary, p90_hours: float | None) -> _Score:
    late = 0.0 if p90_hours is None else max(0.0, found.overall.p90 - p90_hours)
    cost = found.usd_per_useful_chip_hour
    if cost is None:
        cost = found.chip_hours.paid / max(found.chip_hours.useful, 1e-9)
    return len(found.starved), late, cost


def _neighbours(bounds: Sequence[Axis], values: Values) -> Iterator[Values]:
    places = [axis.values.index(value) for axis, value in zip(bounds, values, strict=True)]
    one = [{index: step} for index in range(len(bounds)) for step in (1, -1)]
    two = [{up: 1, down: -1} for up, down in permutations(range(len(bounds)), 2)]
    for moves in (*one, *two):
        moved = [place + moves.get(index, 0) for index, place in enumerate(places)]
        if all(0 <= place < len(axis.values) for axis, place in zip(bounds, moved, strict=True)):
            yield tuple(axis.values[place] for axis, place in zip(bounds, moved, strict=True))


def _changed(
    fleet: Fleet, conditions: Conditions, values: Mapping[Axis, int | None]
) -> tuple[Fleet, Conditions] | None:
    """Return the fleet with these values; `None` if quotas or reservations would be larger than what exists.

    Quotas of a group whose number of slices changes follow in proportion, unless they are searched themselves."""
    groups, queues = dict(fleet.groups), {queue.name: queue for queue in fleet.queues}
    searched = {axis.flavor for axis in values if axis.team and not axis.limit}
    for axis, value in values.items():
        if not axis.flavor:
            conditions = replace(conditions, spares=value or 0)
        elif not axis.team:
            group = groups[axis.flavor]
            groups[axis.flavor] = replace(group, chips=(value or 0) * group.slice_chips)
            if axis.flavor not in searched and axis.current not in (0, None, value):
                queues = _following(queues, axis.flavor, (axis.current, value or 0), group.slice_chips)
        else:
            key = "borrowing_limit" if axis.limit else "nominal"
            queues[axis.team] = _with_quota(queues[axis.team], axis.flavor, **{key: value})
    found = replace(fleet, queues=tuple(queues.values()), groups=groups)
    return (found, conditions) if _exists(fleet, found) else None


def _following(queues: Mapping[str, Queue], flavor: str, slices: tuple[int, int], chips: int) -> dict[str, Queue]:
    """Return queues whose quotas follow a flavor's number of slices, before and after, of so many chips each.

    Quotas are whole slices. Those that rounding leaves go where it takes most."""
    before, after = slices[0] * chips, slices[1]
    found = {name: quota.nominal for name, queue in queues.items() for quota in queue.flavors if quota.flavor == flavor}
    whole = {name: nominal * after // before for name, nominal in found.items()}
    left = sum(found.values()) * after // before - sum(whole.values())
    for name in sorted(found, key=lambda name: -(found[name] * after % before))[:left]:
        whole[name] += 1
    changed = {name: _with_quota(queues[name], flavor, nominal=each * chips) for name, each in whole.items()}
    return {**queues, **changed}


def _with_quota(queue: Queue, flavor: str, **changes: int | None) -> Queue:
    quotas = (each.model_copy(update=changes) if each.flavor == flavor else each for each in queue.flavors)
    return queue.model_copy(update={"flavors": tuple(quotas)})


def _exists(before: Fleet, after: Fleet) -> bool:
    """Return whether a stack file may say so: no reservation has grown, no group is empty, quotas are not larger than
    their groups, and no team lends more than it has."""
    quotas = [quota for queue in after.queues for quota in queue.flavors]
    if any((quota.lending_limit or 0) > quota.nominal for quota in quotas):
        return False
    for flavor, group in after.groups.items():
        given = sum(quota.nominal for quota in quotas if quota.flavor == flavor)
        was, reserved = (_reserved(fleet, group.reservation) for fleet in (before, after))
        if given > group.chips or (group.reservation and reserved > was):
            return False
        if not group.chips and before.groups[flavor].chips:
            return False
    return True


def _reserved(fleet: Fleet, reservation: str | None) -> int:
    return sum(group.chips for group in fleet.groups.values() if group.reservation == reservation)


def _changes(
    fleet: Fleet, conditions: Conditions, after: Fleet, changed: Conditions
) -> Mapping[str, tuple[int | None, int | None]]:
    old, new = ({**_written(each), "spares": given.spares} for each, given in ((fleet, conditions), (after, changed)))
    return {path: (old[path], value) for path, value in new.items() if old[path] != value}


def _written(fleet: Fleet) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for flavor, group in fleet.groups.items():
        found[f"slices.{group.name}.count"] = group.chips // group.slice_chips
        for queue in fleet.queues:
            for quota in (each for each in queue.flavors if each.flavor == flavor):
                found[f"teams.{queue.name}.quota.{group.name}"] = quota.nominal
                found[f"teams.{queue.name}.quota.{group.name}.borrowing_limit"] = quota.borrowing_limit
    return found


def missed(found: Searched, p90_hours: float | None) -> str:
    """Return what no candidate reaches, or nothing."""
    best = found.best[0].summary
    if best.starved:
        return f"jobs starve on each candidate, at least {len(best.starved)}"
    late = p90_hours is not None and best.overall.p90 > p90_hours
    return f"no candidate has a p90 of waits of at most {span(p90_hours or 0)}" if late else ""


def search_tables(found: Searched, p90_hours: float | None, notes: Sequence[str]) -> list[Answer]:
    """Return the best candidates of a search, as changes of the stack file."""
    rows = [
        (
            "\n".join(f"{path}: {_value(new)} (now {_value(old)})" for path, (old, new) in each.changes.items())
            or "as now",
            *(MEASURES[name](each.summary) for name in _OF_CANDIDATES),
        )
        for each in found.best
    ]
    tried = f"tried {found.tried} of {found.possible} combinations in {found.seconds:.0f} s"
    failed = missed(found, p90_hours)
    said = f"{failed}; {tried}" if failed else tried
    columns = ("change", *_OF_CANDIDATES)
    return [Table("Search", said, "bad" if failed else "good", columns, rows, notes, whole=range(1, len(columns)))]


def _value(value: int | None) -> str:
    return "none" if value is None else str(value)
