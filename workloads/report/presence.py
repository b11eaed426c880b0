"""Draws which slices of a job trained when, in attempts whose slices are lost and return one by one."""

from collections.abc import Iterator, Sequence

from workloads.report.chart import RIGHT, WIDTH, Scale, element, picture, text, title
from workloads.report.history import History
from workloads.report.membership import SliceState, Spell

SLICES_SHOWN = 24
"""Number of rows. If there are more slices, those that were away for the longest time are shown."""

STYLES = {SliceState.PRESENT: "fill-1", SliceState.JOINING: "fill-4", SliceState.LOST: "fill-bad"}

_ROW, _BAR, _LEFT, _TOP = 20, 14, 80, 24


def presence_chart(history: History) -> str | None:
    """Draw a band of time for each slice. `None` if all slices of the run stop together."""
    spells = [spell for start in history.starts if start.membership for spell in start.membership.spells]
    if not spells:
        return None
    began, ended = min(spell.since for spell in spells), max(spell.until for spell in spells)
    x = Scale(began, ended, _LEFT, WIDTH - RIGHT)
    shown = _shown(spells)
    rows = [markup for row, one in enumerate(shown) for markup in _band(one, row, spells, x, began)]
    name = "Slices present over time"
    if len(shown) < len({spell.slice for spell in spells}):
        name += f", the {len(shown)} that were away longest"
    return picture(name, _describe(spells), WIDTH, _TOP + _ROW * len(shown), *_legend(), *rows)


def _shown(spells: Sequence[Spell]) -> list[int]:
    slices = sorted({spell.slice for spell in spells})
    return sorted(sorted(slices, key=lambda one: -_away(spells, one))[:SLICES_SHOWN])


def _away(spells: Sequence[Spell], one: int) -> float:
    found = [spell for spell in spells if spell.slice == one and spell.state is not SliceState.PRESENT]
    return sum(spell.until - spell.since for spell in found)


def _band(one: int, row: int, spells: Sequence[Spell], x: Scale, began: float) -> Iterator[str]:
    top = _TOP + row * _ROW
    yield text(f"slice {one}", _LEFT - 8, top + _BAR - 2, class_="label", text_anchor="end")
    for spell in spells:
        if spell.slice == one:
            left, right = x(spell.since), x(spell.until)
            words = (
                f"slice {one} {spell.state} for {spell.until - spell.since:.1f} s, from {spell.since - began:.1f} s on"
            )
            # A short absence must be visible in a long run.
            width = max(right - left, 1.0)
            yield element("rect", title(words), x=left, y=top, width=width, height=_BAR, class_=STYLES[spell.state])


def _legend() -> Iterator[str]:
    place = float(_LEFT)
    for state, style in STYLES.items():
        yield element("rect", x=place, y=4, width=12, height=12, class_=style)
        yield text(state, place + 18, 14, class_="label")
        place += 100


def _describe(spells: Sequence[Spell]) -> str:
    """Describe the chart in words."""
    words = [f"slice {one} was away for {_away(spells, one):.1f} s" for one in _shown(spells)]
    return ". ".join(words)
