"""What a replay says, also as tables: waits, idle chips, dollars, evictions and starved jobs."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import ceil

from infra.review.replay.fleet import Fleet
from infra.review.replay.simulation import Replayed, Run
from infra.review.table import UNKNOWN, Answer, Table
from infra.stack.cost import dollars
from infra.stack.names import MINUTES_PER_HOUR
from workloads.spec.base import Spec

MAX_NAMED = 20


class Waits(Spec):
    """Hours in which the jobs of one team and shape wait: from submission to the first step, and after preemptions. A
    job that has not started waits up to the end of the trace."""

    team: str
    shape: str
    jobs: int
    p50: float
    p90: float
    max: float


class Starved(Spec):
    """A job that waited very long, or that no quota can ever admit."""

    name: str
    team: str
    shape: str
    chips: int
    hours: float
    started: bool


class ChipHours(Spec):
    """Where the chip-hours went."""

    paid: float
    """All of the fleet's slices and spares, and requested chips while they existed."""
    useful: float
    lost: float
    """Work that was done again."""
    restarting: float
    repaired: float
    """Slices under repair or maintenance."""
    idle: float


class Summary(Spec):
    """The results of a replay."""

    fleet: str
    jobs: int
    finished: int
    waits: tuple[Waits, ...]
    """First those of all jobs, with empty names."""
    preemptions: int
    interruptions: int
    """Failures and maintenance of slices in use, and returns of requested chips."""
    lost_chip_hours: float
    chip_hours: ChipHours
    goodput: float
    """Share of the paid chip-hours that was useful."""
    usd: float | None
    """US dollars for all chips. `None` if a price is unknown."""
    idle_usd: float | None
    usd_per_useful_chip_hour: float | None
    unknown_prices: tuple[str, ...]
    starved: tuple[Starved, ...]
    """Jobs that waited for at least the hours that the caller named or that no quota can ever admit, the longest wait
    first."""
    preempts_in_circles: tuple[str, ...]
    """Jobs that preempted each other in turn at one moment, without end. The replay stopped that."""

    @property
    def overall(self) -> Waits:
        return self.waits[0]


def summarize(found: Replayed, starved_hours: float) -> Summary:
    """Return the results of a replay. A job that waits for `starved_hours` is starved."""
    hours = _chip_hours(found)
    unknown = tuple(group.name for group in found.fleet.groups.values() if group.usd_per_chip_hour is None)
    usd, idle_usd = (None if unknown else round(each, 2) for each in _dollars(found.fleet, hours))
    total = _sum(hours.values())
    starved = [run for run in found.runs if run.waited >= starved_hours or not run.admissible]
    starved.sort(key=lambda run: -run.waited)
    return Summary(
        fleet=found.fleet.name,
        jobs=len(found.runs),
        finished=sum(run.finished is not None for run in found.runs),
        waits=tuple(_waits(found.runs)),
        preemptions=sum(run.preemptions for run in found.runs),
        interruptions=sum(run.interruptions for run in found.runs),
        lost_chip_hours=round(sum(run.lost_chip_hours for run in found.runs), 1),
        chip_hours=total,
        goodput=round(total.useful / total.paid, 4) if total.paid else 0.0,
        usd=usd,
        idle_usd=idle_usd,
        usd_per_useful_chip_hour=round(usd / total.useful, 4) if usd is not None and total.useful else None,
        unknown_prices=unknown,
        starved=tuple(
            Starved(
                name=run.job.name,
                team=run.job.team,
                shape=run.job.shape,
                chips=run.chips,
                hours=round(run.waited, 2),
                started=run.first_start is not None,
            )
            for run in starved
        ),
        preempts_in_circles=tuple(sorted(found.circles)),
    )


def _waits(runs: Sequence[Run]) -> Iterable[Waits]:
    of_kind = defaultdict[tuple[str, str], list[float]](list)
    for run in runs:
        for kind in (("", ""), (run.job.team, run.job.shape)):
            of_kind[kind].append(run.waited)
    for (team, shape), waits in sorted(of_kind.items()):
        waits.sort()
        p50, p90, most = (round(waits[ceil(share * len(waits)) - 1], 3) for share in (0.5, 0.9, 1.0))
        yield Waits(team=team, shape=shape, jobs=len(waits), p50=p50, p90=p90, max=most)


def _chip_hours(found: Replayed) -> Mapping[str, ChipHours]:
    result: dict[str, ChipHours] = {}
    for flavor, group in found.fleet.groups.items():
        usage, spares = found.usage[flavor], found.conditions.spares * group.slice_chips
        used = sum(usage.by_use.values())
        paid = used if group.on_request else (group.chips + spares) * found.trace.hours
        parts = {use: round(usage.by_use.get(use, 0.0), 3) for use in ("useful", "lost", "restarting")}
        repaired = 0.0 if group.on_request else usage.repaired
        idle = max(0.0, paid - used - repaired)
        result[flavor] = ChipHours(paid=round(paid, 3), **parts, repaired=round(repaired, 3), idle=round(idle, 3))
    return result


def _sum(hours: Iterable[ChipHours]) -> ChipHours:
    listed = [*hours]
    return ChipHours(**{key: round(sum(getattr(each, key) for each in listed), 1) for key in ChipHours.model_fields})


def _dollars(fleet: Fleet, hours: Mapping[str, ChipHours]) -> tuple[float, float]:
    usd = idle = 0.0
    for flavor, each in hours.items():
        price = fleet.groups[flavor].usd_per_chip_hour or 0.0
        usd, idle = usd + price * each.paid, idle + price * each.idle
    return usd, idle


def chips_over_time(found: Replayed, points: int) -> tuple[list[float], Mapping[str, list[float]], list[float]]:
    """Return days, and the mean numbers of chips in use by team and of idle chips up to each of them."""
    width = found.trace.hours / points
    series = {team: [0.0] * points for team in sorted({run.job.team for run in found.runs})}
    total = [0.0] * points
    for flavor, usage in found.usage.items():
        group = found.fleet.groups[flavor]
        standing = 0 if group.on_request else group.chips + found.conditions.spares * group.slice_chips
        total = [each + standing for each in total]
        for team, begin, end, chips in usage.intervals:
            for index in range(int(begin / width), min(points, int(end / width) + 1)):
                share = max(0.0, min(end, (index + 1) * width) - max(begin, index * width)) / width
                series[team][index] += chips * share
                total[index] += chips * share if group.on_request else 0.0
    idle = [max(0.0, all_ - sum(used)) for all_, used in zip(total, zip(*series.values(), strict=True), strict=True)]
    return [(index + 1) * width / 24 for index in range(points)], series, idle


def tables(found: Sequence[Summary], notes: Sequence[str] = ()) -> list[Answer]:
    """Return the tables about the replays of one trace on one fleet, or on two: before and after."""
    last = found[-1]
    names = names_of_fleets(found)
    rows = [(name, *map(shown, found)) for name, shown in MEASURES.items()]
    waits = Table(
        title="Waits",
        verdict=f"p90 {span(last.overall.p90)}, at most {span(last.overall.max)}",
        state="good",
        columns=(
            "team",
            "shape",
            "jobs",
            *(f"{what} {name}".strip() for name in (names if len(names) > 1 else ("",)) for what in _WAITS),
        ),
        rows=[_wait_row(each, found) for each in last.waits[1:]],
    )
    return [
        Table("Replay", verdict(last), "bad" if last.starved else "good", ("", *names), rows, notes),
        waits,
        *_starved_tables(last),
    ]


def names_of_fleets(found: Sequence[Summary]) -> list[str]:
    """Return a name for each fleet: its own, or `before` and `after` if both have the same."""
    names = [each.fleet for each in found]
    return names if len({*names}) == len(names) else ["before", "after"]


def verdict(found: Summary) -> str:
    """Return the result of a replay in a sentence."""
    idle = found.chip_hours.idle / found.chip_hours.paid if found.chip_hours.paid else 0.0
    starved = f"{len(found.starved)} jobs starve" if found.starved else "no job starves"
    return (
        f"{found.finished} of {found.jobs} jobs end, {starved}; p90 of waits {span(found.overall.p90)},"
        f" {100 * idle:.1f} % of the chips idle, {found.preemptions} preemptions"
    )


def measures(found: Summary) -> Iterator[tuple[str, str]]:
    """Yield the names and values of the results."""
    yield from ((name, shown(found)) for name, shown in MEASURES.items())


def span(hours: float) -> str:
    """Return hours as text, such as `5 min` or `3.5 h`."""
    return f"{hours * MINUTES_PER_HOUR:.0f} min" if hours < 2 else f"{hours:.1f} h"


def _share(part: Callable[[Summary], float]) -> Callable[[Summary], str]:
    def shown(found: Summary) -> str:
        paid = found.chip_hours.paid
        return f"{part(found):,.0f} ({100 * part(found) / paid:.1f} %)" if paid else "0"

    return shown


def _usd(part: Callable[[Summary], float | None]) -> Callable[[Summary], str]:
    return lambda found: UNKNOWN if part(found) is None else dollars(part(found))


MEASURES: dict[str, Callable[[Summary], str]] = {
    "jobs that end": lambda found: f"{found.finished} of {found.jobs}",
    "wait, p50": lambda found: span(found.overall.p50),
    "wait, p90": lambda found: span(found.overall.p90),
    "wait, longest": lambda found: span(found.overall.max),
    "starved jobs": lambda found: str(len(found.starved)),
    "idle chip-hours": _share(lambda found: found.chip_hours.idle),
    "under repair, chip-hours": _share(lambda found: found.chip_hours.repaired),
    "preemptions": lambda found: str(found.preemptions),
    "interruptions by failures and maintenance": lambda found: str(found.interruptions),
    "lost chip-hours": _share(lambda found: found.chip_hours.lost),
    "goodput": lambda found: f"{100 * found.goodput:.1f} %",
    "cost of all chips": _usd(lambda found: found.usd),
    "cost of idle chips": _usd(lambda found: found.idle_usd),
    "cost per useful chip-hour": _usd(lambda found: found.usd_per_useful_chip_hour),
}
_WAITS = ("p50", "p90", "max")


def _wait_row(last: Waits, found: Sequence[Summary]) -> Sequence[str]:
    of_each = [{(each.team, each.shape): each for each in summary.waits}[last.team, last.shape] for summary in found]
    return last.team, last.shape, str(last.jobs), *(span(getattr(each, what)) for each in of_each for what in _WAITS)


def _starved_tables(found: Summary) -> Iterator[Answer]:
    if found.starved:
        rows = [
            (each.name, each.team, each.shape, str(each.chips), span(each.hours), "yes" if each.started else "never")
            for each in found.starved[:MAX_NAMED]
        ]
        left = len(found.starved) - len(rows)
        notes = [f"and {left} more"] if left > 0 else []
        columns = ("job", "team", "shape", "chips", "waited", "started")
        yield Table("Starved", f"{len(found.starved)} jobs", "bad", columns, rows, notes)
    if found.preempts_in_circles:
        names = ", ".join(found.preempts_in_circles[:MAX_NAMED])
        yield Answer("Circles", f"these jobs preempt each other in turn: {names}", "bad")
