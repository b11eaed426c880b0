"""Boxes with arrows between them, as an SVG that needs nothing from elsewhere and follows the reader's scheme."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap

from workloads.report.chart import element, picture, style_sheet, text

_WIDTH, _GAP, _ROW_GAP, _PAD = 230, 46, 40, 12
_LINE = 17
_CHARACTERS = 31
"""As many as fit into a box beside each other."""
_COLUMNS = 3
_CAPTION_HEIGHT = 20
_DARK = re.compile(r"^(@media \(prefers-color-scheme: dark\) \{\n)(.*?)^\}\n", re.MULTILINE | re.DOTALL)
_COLOUR = re.compile(r"--([\w-]+): ([^;]+);")
_USE = re.compile(r"var\(--([\w-]+)\)")
_COLOURED = re.compile(r"[^{}]+\{[^{}]*var\([^{}]*\}")
"""A rule with colours."""
_HEAD = 8
"""Length of an arrow's head."""


@dataclass(frozen=True)
class Box:
    """One station of the way."""

    title: str
    lines: Sequence[str]
    fails: bool = False
    """Drawn as what nobody wants."""
    instead: bool = False
    """Comes in place of the box before, not after it."""

    @property
    def wrapped(self) -> list[str]:
        return [part for line in self.lines for part in wrap(line, _CHARACTERS)]


def flow(name: str, caption: str, boxes: Sequence[Box], closes: str = "") -> str:
    """The whole picture; `closes` names what leads from the last box back to the first."""
    height = max(len(box.wrapped) for box in boxes) * _LINE + 2 * _PAD + _LINE
    corners = [_corner(place, height) for place in range(len(boxes))]
    drawn = [_box(box, *corner, height) for box, corner in zip(boxes, corners, strict=True)]
    for (x, y), (next_x, next_y), box in zip(corners, corners[1:], boxes[1:], strict=False):
        if not box.instead:
            beside = [(x + _WIDTH, y + height / 2), (next_x, y + height / 2)]
            drawn.append(arrow(beside if y == next_y else _down(x, next_x, y + height, next_y)))
    rows = -(-len(boxes) // _COLUMNS)
    foot = _ROW_GAP if closes else 0
    wide, tall = _COLUMNS * (_WIDTH + _GAP), rows * (height + _ROW_GAP) + foot
    if closes:
        drawn.append(_back(closes, corners[-1], height, tall))
    words = "; ".join(f"{box.title}: {', '.join(box.lines)}" for box in boxes)
    drawing = picture(name, words, wide, tall, *drawn)
    return document(caption, drawing, wide, tall)


def document(caption: str, drawing: str, width: int, height: int) -> str:
    """Return a picture of that size as a separate file with its own caption.

    SVG renderers outside of browsers support neither CSS variables nor automatic height, and show the light scheme.
    """
    light, dark = _DARK.sub("", style_sheet()), _DARK.search(style_sheet())
    assert dark, "the style sheet has a dark scheme"
    colours = dict(_COLOUR.findall(light))
    in_the_dark = colours | dict(_COLOUR.findall(dark[2]))
    rules = _USE.sub(lambda use: in_the_dark[use[1]], "".join(_COLOURED.findall(light)))
    sheet = f"{_USE.sub(lambda use: colours[use[1]], light)}{dark[1]}{rules}\n}}\n"
    size = f"width: {width}px; height: {height}px;"
    drawn = element(
        "svg",
        # A margin would push the caption out of the picture.
        element("style", f"{sheet}svg {{ margin: 0; }} svg svg {{ {size} }}"),
        element("rect", width="100%", height="100%", class_="inner"),
        drawing,
        text(caption, 8, height + _CAPTION_HEIGHT - 6, class_="label"),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height + _CAPTION_HEIGHT}",
    )
    return drawn.replace("><", ">\n<") + "\n"


def _corner(place: int, height: int) -> tuple[float, float]:
    row, column = divmod(place, _COLUMNS)
    return _GAP / 2 + column * (_WIDTH + _GAP), _PAD + row * (height + _ROW_GAP)


def _box(box: Box, x: float, y: float, height: int) -> str:
    stroke = {"style": "stroke: #d03b3b"} if box.fails else {}
    return card(box.title, box.wrapped, (x, y, _WIDTH, height), "box", **stroke)


def card(title: str, lines: Sequence[str], place: tuple[float, float, float, float], kind: str, **more: object) -> str:
    """Draw one box. `place` is its left and top edge, width and height, and `kind` its CSS class."""
    x, y, width, height = place
    outline = element("rect", x=x, y=y, width=width, height=height, rx=6, class_=kind, **more)
    head = text(title, x + _PAD, y + _PAD + 10, class_="label strong")
    top = y + _PAD + 10 + _LINE
    return "".join([outline, head, *(text(line, x + _PAD, top + row * _LINE) for row, line in enumerate(lines))])


def _down(x: float, next_x: float, bottom: float, next_y: float) -> list[tuple[float, float]]:
    """From the last box of a row to the first of the next one."""
    half = (bottom + next_y) / 2
    middle, target = x + _WIDTH / 2, next_x + _WIDTH / 2
    return [(middle, bottom), (middle, half), (target, half), (target, next_y)]


def _back(words: str, last: tuple[float, float], height: int, tall: int) -> str:
    """Round the picture's left side, up to the first box."""
    x, low, side, top = last[0] + _WIDTH / 2, tall - _ROW_GAP / 2, _GAP / 6, _PAD + height / 2
    bottom = last[1] + height
    line = arrow([(x, bottom), (x, low), (side, low), (side, top), (_GAP / 2, top)])
    return line + text(words, side + _PAD, low - 6, class_="label")


def arrow(points: Sequence[tuple[float, float]]) -> str:
    """Draw a line through the points, with a head at the last one."""
    (x, y), (before_x, before_y) = points[-1], points[-2]
    across, along = (x - before_x, y - before_y)
    length = abs(across) + abs(along)
    unit_x, unit_y = across / length, along / length
    back_x, back_y = x - unit_x * _HEAD, y - unit_y * _HEAD
    side_x, side_y = unit_y * _HEAD / 2, unit_x * _HEAD / 2
    line = " ".join(f"{a:.0f},{b:.0f}" for a, b in [*points[:-1], (back_x, back_y)])
    corners = [(x, y), (back_x + side_x, back_y + side_y), (back_x - side_x, back_y - side_y)]
    head = " ".join(f"{a:.0f},{b:.0f}" for a, b in corners)
    drawn = element("polyline", points=line, style="fill: none; stroke: #75736d; stroke-width: 1.5")
    return drawn + element("polygon", points=head, style="fill: #75736d")
