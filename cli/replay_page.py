"""The page of a replay: chips over time by team, and waits by shape."""

from collections.abc import Iterator, Sequence
from html import escape

from infra.review.replay.results import Summary, chips_over_time, measures, names_of_fleets, span, verdict
from infra.review.replay.simulation import Replayed
from workloads.report.chart import Bar, Line, bars, element, line_chart
from workloads.report.page import document, quiet, section, tiles

_POINTS = 240
_COLOURS = 8
"""Number of colours of the style sheet. Further teams are one line."""
_OTHERS = "other teams"


def page(found: Sequence[Replayed], summaries: Sequence[Summary], notes: Sequence[str]) -> str:
    """Return the page as HTML without scripts."""
    return document("Replay", _parts(found, summaries, notes))


def _parts(found: Sequence[Replayed], summaries: Sequence[Summary], notes: Sequence[str]) -> Iterator[str]:
    yield element("h1", "Replay")
    for replayed, summary, fleet in zip(found, summaries, names_of_fleets(summaries), strict=True):
        name = f"{fleet}: " if len(found) > 1 else ""
        yield section(
            f"{name}chips over time", quiet(f"{verdict(summary)}."), tiles(measures(summary)), _chips(replayed)
        )
    yield section("Waits by shape", quiet("The bar is the p90: nine of ten jobs waited less."), _waits(summaries))
    if starved := summaries[-1].starved:
        named = [element("li", escape(f"{each.name}, {each.chips} chips: {span(each.hours)}")) for each in starved]
        yield section("Starved jobs", element("ul", *named))
    yield section("What was assumed", *map(quiet, notes))


def _chips(found: Replayed) -> str:
    days, series, idle = chips_over_time(found, _POINTS)
    teams = sorted(series.items(), key=lambda each: -sum(each[1]))
    shown, rest = teams[:_COLOURS], teams[_COLOURS - 1 :]
    if len(teams) > _COLOURS:
        together = [sum(each) for each in zip(*(values for _, values in rest), strict=True)]
        shown = [*teams[: _COLOURS - 1], (_OTHERS, together)]
    lines = [
        Line(name, f"c{index}", [[*zip(days, values, strict=True)]]) for index, (name, values) in enumerate(shown, 1)
    ]
    return line_chart("Chips over time", "day", [*lines, Line("idle chips", "lost", [[*zip(days, idle, strict=True)]])])


def _waits(summaries: Sequence[Summary]) -> str:
    drawn: list[Bar] = []
    for index, waits in enumerate(summaries[-1].waits[1:], 1):
        for summary, fleet in zip(summaries, names_of_fleets(summaries), strict=True):
            each = summary.waits[index]
            of_fleet = f", {fleet}" if len(summaries) > 1 else ""
            words = f"p50 {span(each.p50)}, p90 {span(each.p90)}, longest {span(each.max)}"
            style = "fill-1" if summary is summaries[-1] else "fill-idle"
            drawn.append(Bar(f"{waits.team} {waits.shape}{of_fleet}", each.p90, words, style))
    return bars("Waits by shape", drawn)
