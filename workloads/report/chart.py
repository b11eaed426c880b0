"""Draws line charts, bars and stacked bars as SVG, with titles and descriptions for screen readers.

Colours are CSS classes of `page`, which follow the reader's light or dark scheme. All text is escaped.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from math import ceil, floor, log10
from zlib import crc32


def element(name: str, *children: str, **attributes: object) -> str:
    """Return one element. `children` are already markup.

    In attribute names, trailing underscores are removed and other underscores become dashes.
    """
    words = [f'{key.rstrip("_").replace("_", "-")}="{escape(_word(value))}"' for key, value in attributes.items()]
    head = " ".join([name, *words])
    return f"<{head}>{''.join(children)}</{name}>"


def _word(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def style_sheet() -> str:
    """Return the CSS of the page and its pictures."""
    return (files(__package__) / "page.css").read_text()


def text(words: object, x: float, y: float, **attributes: object) -> str:
    """Return words in a picture."""
    return element("text", escape(str(words)), x=float(x), y=float(y), **attributes)


def title(words: str) -> str:
    """Return a tooltip of the element around it."""
    return element("title", escape(words))


def picture(name: str, description: str, width: int, height: int, *children: str) -> str:
    """Return a picture with a name and a description."""
    # A hash, not a counter, so that a picture is the same text wherever it is drawn.
    number = f"{crc32((name + description).encode()):08x}"
    named = element("title", escape(name), id=f"name-{number}")
    described = element("desc", escape(description), id=f"description-{number}")
    return element(
        "svg",
        named,
        described,
        *children,
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_labelledby=f"name-{number} description-{number}",
    )


WIDTH, HEIGHT = 960, 300

LEFT, RIGHT, TOP, BOTTOM = 64, 16, 30, 34

POINTS_SHOWN = 600
"""Number of points to draw. A longer line shows the lowest and the highest point of each stretch."""

HOVERED_POINTS = 200
"""Number of points that show their value under the pointer."""

TICKS = 5

type Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """One line of a chart, in one or more pieces."""

    name: str
    style: str
    """CSS class of its colour."""
    pieces: Sequence[Sequence[Point]]
    dots: bool = False
    """Whether to draw each point, for a line with few points. Default: no."""


@dataclass(frozen=True)
class Mark:
    """An event at one position of the horizontal axis."""

    x: float
    words: str
    style: str


@dataclass(frozen=True)
class Scale:
    """Maps values to positions in the picture."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low
        return self.start + (self.end - self.start) * ((value - self.low) / span if span else 0.5)


def line_chart(name: str, across: str, lines: Sequence[Line], marks: Sequence[Mark] = ()) -> str:
    """Draw the lines over one horizontal axis with the label `across`."""
    points = [point for line in lines for piece in line.pieces for point in piece]
    if not points:
        return element("p", f"{name}: nothing recorded", class_="quiet")
    xs = [point[0] for point in points] + [mark.x for mark in marks]
    steps = nice_ticks(min(xs), max(xs))
    ticks = nice_ticks(min(y for _, y in points), max(y for _, y in points))
    x = Scale(steps[0], steps[-1], LEFT, WIDTH - RIGHT)
    y = Scale(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP)
    drawn = [markup for line in lines for markup in _line(line, x, y, across)]
    return picture(
        name,
        _describe(lines, across, marks),
        WIDTH,
        HEIGHT,
        *_vertical_axis(ticks, y),
        *_horizontal_axis(steps, x, across),
        *_marks(marks, x),
        *drawn,
        *_legend([line for line in lines if any(line.pieces)]),
    )


def nice_ticks(low: float, high: float) -> list[float]:
    """Return round values from below `low` to above `high`."""
    if low == high:
        low, high = (low - abs(low) / 2, high + abs(high) / 2) if low else (0.0, 1.0)
    rough = (high - low) / TICKS
    power = 10.0 ** floor(log10(rough))
    step = next(size * power for size in (1, 2, 2.5, 5, 10) if size * power >= rough * (1 - 1e-9))
    first, last = floor(low / step), ceil(high / step)
    return [number * step for number in range(first, last + 1)]


def thin(piece: Sequence[Point], limit: int) -> list[Point]:
    """Return at most about `limit` of the points, including peaks and dips."""
    if len(piece) <= limit:
        return [*piece]
    stretch = ceil(2 * len(piece) / limit)
    kept: list[Point] = []
    for begin in range(0, len(piece), stretch):
        part = piece[begin : begin + stretch]
        kept += sorted({min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])})
    return kept


def amount(value: float) -> str:
    """Format a number in a few characters."""
    for limit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if letter == 'k' else limit):.4g}{letter}"
    return f"{value:.4g}"


def _line(line: Line, x: Scale, y: Scale, across: str) -> Iterator[str]:
    for piece in line.pieces:
        places = [(x(a), y(b)) for a, b in thin(piece, POINTS_SHOWN)]
        if len(places) > 1:
            path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
            yield element("polyline", points=path, class_=f"line {line.style}")
        shown = line.dots or len(places) == 1
        for a, b in thin(piece, HOVERED_POINTS):
            words = title(f"{line.name}, {across} {amount(a)}: {amount(b)}")
            dot = f"dot {line.style}" if shown else f"hover {line.style}"
            yield element("circle", words, cx=x(a), cy=y(b), r=4, class_=dot)


def _vertical_axis(ticks: Sequence[float], y: Scale) -> Iterator[str]:
    for tick in ticks:
        yield element("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y(tick), y2=y(tick), class_="grid")
        yield text(amount(tick), LEFT - 8, y(tick) + 4, class_="tick", text_anchor="end")


def _horizontal_axis(ticks: Sequence[float], x: Scale, across: str) -> Iterator[str]:
    whole = sorted({float(round(tick)) for tick in ticks})
    for tick in [tick for tick in whole if x.low <= tick <= x.high]:
        yield text(amount(tick), x(tick), HEIGHT - BOTTOM + 18, class_="tick", text_anchor="middle")
    yield text(across, WIDTH - RIGHT, HEIGHT - 2, class_="tick", text_anchor="end")


def _marks(marks: Sequence[Mark], x: Scale) -> Iterator[str]:
    for mark in marks:
        rule = element("line", x1=x(mark.x), x2=x(mark.x), y1=TOP, y2=HEIGHT - BOTTOM, class_=f"mark {mark.style}")
        flag = element("circle", cx=x(mark.x), cy=TOP, r=5, class_=f"dot {mark.style}")
        yield element("g", title(mark.words), rule, flag)


def _legend(lines: Sequence[Line]) -> Iterator[str]:
    place = float(LEFT)
    for line in lines if len(lines) > 1 else ():
        yield element("line", x1=place, x2=place + 18, y1=10, y2=10, class_=f"line {line.style}")
        yield text(line.name, place + 24, 14, class_="label")
        place += 24 + 7.5 * len(line.name) + 20


def _describe(lines: Sequence[Line], across: str, marks: Sequence[Mark]) -> str:
    words: list[str] = []
    for line in lines:
        if points := [point for piece in line.pieces for point in piece]:
            values = [value for _, value in points]
            words.append(
                f"{line.name}: from {amount(values[0])} at {across} {amount(points[0][0])} to {amount(values[-1])} at"
                f" {across} {amount(points[-1][0])}, between {amount(min(values))} and {amount(max(values))}"
            )
    return ". ".join([*words, *(mark.words for mark in marks)])


@dataclass(frozen=True)
class Bar:
    """One of several bars in a column."""

    name: str
    value: float
    words: str
    style: str


ROW, NAME_WIDTH, WORDS_WIDTH = 26, 200, 250


def bars(name: str, shown: Sequence[Bar]) -> str:
    """Draw values as bars in a column."""
    high = max((bar.value for bar in shown), default=0.0)
    x = Scale(0.0, high or 1.0, NAME_WIDTH, WIDTH - WORDS_WIDTH)
    rows: list[str] = []
    for number, bar in enumerate(shown):
        top = number * ROW
        rows += [
            text(bar.name, NAME_WIDTH - 8, top + 17, class_="label", text_anchor="end"),
            element(
                "rect", x=NAME_WIDTH, y=top + 5, width=max(x(bar.value) - NAME_WIDTH, 1.0), height=16, class_=bar.style
            ),
            text(bar.words, x(bar.value) + 8, top + 17, class_="tick"),
        ]
    description = ". ".join(f"{bar.name}: {bar.words}" for bar in shown)
    return picture(name, description, WIDTH, ROW * max(len(shown), 1), *rows)


def long_bar(name: str, parts: Sequence[Bar]) -> str:
    """Draw the parts of a whole as one stacked bar."""
    whole = sum(part.value for part in parts) or 1.0
    place = 0.0
    drawn: list[str] = []
    for part in parts:
        width = WIDTH * part.value / whole
        # A gap of the surface's colour keeps neighbours apart.
        shape = element(
            "rect", title(part.words), x=place, y=0, width=max(width - 2, 0.5), height=44, class_=part.style
        )
        drawn.append(shape)
        place += width
    return picture(name, ". ".join(part.words for part in parts), WIDTH, 44, *drawn)
