"""The results of one or two replays as tables."""

from collections.abc import Callable, Iterator, Sequence

from infra.review.replay.results import MAX_NAMED, Summary, Waits
from infra.review.replay.search import Searched
from infra.review.table import UNKNOWN, Answer, State, Table
from infra.stack.cost import dollars

_MINUTES_PER_HOUR = 60


def tables(found: Sequence[Summary], notes: Sequence[str] = ()) -> list[Answer]:
    """Return the tables about the replays of one trace on one fleet, or on two: before and after."""
    last = found[-1]
    names = names_of_fleets(found)
    rows = [(name, *map(shown, found)) for name, shown in _MEASURES.items()]
    waits = Table(
        title="Waits",
        verdict=f"p90 {span(last.overall.p90)}, at most {span(last.overall.max)}",
        state="good",
        columns=("team", "shape", "jobs", *(f"{what} {name}".strip() for name in _labels(names) for what in _WAITS)),
        rows=[_wait_row(each, found) for each in last.waits[1:]],
    )
    return [Table("Replay", verdict(last), _state(last), ("", *names), rows, notes), waits, *_starved(last)]


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
    yield from ((name, shown(found)) for name, shown in _MEASURES.items())


def span(hours: float) -> str:
    """Return hours as text, such as `5 min` or `3.5 h`."""
    return f"{hours * _MINUTES_PER_HOUR:.0f} min" if hours < 2 else f"{hours:.1f} h"


def _labels(names: Sequence[str]) -> Sequence[str]:
    return names if len(names) > 1 else ("",)


def _state(found: Summary) -> State:
    return "bad" if found.starved else "good"


def _share(part: Callable[[Summary], float]) -> Callable[[Summary], str]:
    def shown(found: Summary) -> str:
        paid = found.chip_hours.paid
        return f"{part(found):,.0f} ({100 * part(found) / paid:.1f} %)" if paid else "0"

    return shown


def _usd(part: Callable[[Summary], float | None]) -> Callable[[Summary], str]:
    return lambda found: UNKNOWN if part(found) is None else dollars(part(found))


_MEASURES: dict[str, Callable[[Summary], str]] = {
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
_OF_CANDIDATES = (
    "cost per useful chip-hour",
    "jobs that end",
    "starved jobs",
    "wait, p90",
    "idle chip-hours",
    "preemptions",
)
_WAITS = ("p50", "p90", "max")


def _wait_row(last: Waits, found: Sequence[Summary]) -> Sequence[str]:
    of_each = [{(each.team, each.shape): each for each in summary.waits}[last.team, last.shape] for summary in found]
    return last.team, last.shape, str(last.jobs), *(span(getattr(each, what)) for each in of_each for what in _WAITS)


def _starved(found: Summary) -> Iterator[Answer]:
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
            *(_MEASURES[name](each.summary) for name in _OF_CANDIDATES),
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
