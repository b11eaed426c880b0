"""Draws screens of a terminal as one SVG that shows them in turn, with CSS only.

Readers who prefer reduced motion see the last screen, as do renderers without animations.
"""

import io
import re
from collections.abc import Iterator, Sequence

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

WITHOUT_FONTS = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
"""No font from another site: readers have a monospaced one."""
_FRAME = """<style>{styles}</style><g class="frame {unique_id}" transform="translate({terminal_x}, {terminal_y})">
{backgrounds}<g class="frames-matrix">{matrix}</g></g>"""
_CLIP = re.compile(r' clip-path="[^"]*-line-\d+\)"')
_SECONDS, _LAST_SECONDS = 2.0, 6.0
"""Time that a screen is shown, and the last one."""


def animation(screens: Sequence[str], title: str, columns: int, lines: int) -> str:
    """Return an SVG of the screens, which are lines with ANSI colours. Longer screens show their last lines."""
    terminal = _export("", title, "frames", columns, lines, WITHOUT_FONTS)
    frames = [_CLIP.sub("", _export(text, "", f"f{n}", columns, lines, _FRAME)) for n, text in enumerate(screens)]
    sheet = "\n".join(_rules(len(screens)))
    return terminal.replace("</svg>", f"<style>{sheet}</style>{''.join(frames)}</svg>")


def _export(text: str, title: str, name: str, columns: int, lines: int, code_format: str) -> str:
    shown = text.split("\n")[-lines:]
    padded = "\n".join([*shown, *[""] * (lines - len(shown))])
    console = Console(record=True, width=columns, file=io.StringIO(), highlight=False)
    console.print(Text.from_ansi(padded), no_wrap=True, overflow="ellipsis")
    return console.export_svg(title=title, code_format=code_format, unique_id=name)


def _rules(frames: int) -> Iterator[str]:
    whole = _SECONDS * (frames - 1) + _LAST_SECONDS
    yield ".frame { visibility: hidden; }"
    yield f".f{frames - 1} {{ visibility: visible; }}"
    for number in range(frames):
        begin, end = (100 * _SECONDS * place / whole for place in (number, number + 1))
        after = "" if number == frames - 1 else f"{end:.2f}% {{ visibility: hidden; }} "
        yield f"@keyframes k{number} {{ 0% {{ visibility: hidden; }} {begin:.2f}% {{ visibility: visible; }} {after}}}"
        yield f".f{number} {{ animation: k{number} {whole}s step-end infinite; }}"
    yield "@media (prefers-reduced-motion: reduce) { .frame { animation: none; } }"
