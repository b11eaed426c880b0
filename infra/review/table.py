"""A table of a review, as text for terminals and logs and as Markdown for comments."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

WIDTH = 100
"""Number of columns that every log and terminal has."""

UNKNOWN = "unknown"
"""Text for an unknown number."""


State = Literal["good", "notable", "bad"]
"""State of an answer: fine, worth a look, or the plan cannot run."""

_ADDRESS = re.compile(r"https://[\w./:?=&%#~+,-]*[\w/]", re.ASCII)
_MARKS = re.compile(r"[\\|*_<>`\[\]~!&]")
_CALLS = re.compile(r"((?<!\w)[@#])(?=\w)")
"""Start of a mention of a person or team, or of a reference to an issue."""
_COLOURS: dict[State, str] = {"good": "green", "notable": "yellow", "bad": "bold red"}


@dataclass(frozen=True)
class Table:
    """One question and its answer."""

    title: str
    verdict: str
    """The answer in a few words."""
    state: State
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()
    whole: Sequence[int] = ()
    """Columns with short cells, which are not wrapped."""
    folded: bool = False
    """Whether a comment hides the rows until a reader expands them."""


def renderable(tables: Iterable[Table]) -> RenderableType:
    """Return the tables for rich, which omits colours if there is no terminal."""
    return Group(*(part for table in tables for part in _parts(table)))


def as_text(tables: Iterable[Table]) -> str:
    """Return the tables as plain text, at most `WIDTH` columns wide."""
    console = Console(file=StringIO(), width=WIDTH, color_system=None)
    with console.capture() as captured:
        console.print(renderable(tables))
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n")


def as_markdown(tables: Iterable[Table]) -> str:
    """Return the tables as a comment on a pull request."""
    return "\n\n".join(_markdown(table) for table in tables)


def _parts(table: Table) -> Iterable[RenderableType]:
    yield Text.assemble((table.title, "bold"), "  ", (table.verdict, _COLOURS[table.state]))
    if table.rows:
        grid = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1), header_style="dim")
        for index, column in enumerate(table.columns):
            justify = "right" if _numeric(table, index) else "left"
            grid.add_column(column, justify=justify, overflow="fold", no_wrap=index in table.whole)
        for row in table.rows:
            grid.add_row(*map(escape, row))
        yield grid
    yield from (Text(note, style="dim") for note in table.notes)
    yield Text()


def _markdown(table: Table) -> str:
    lines = [f"### {table.title}", "", f"**{_cell(table.verdict)}**"]
    if table.rows:
        lines += ["", "<details><summary>each one</summary>"] if table.folded else []
        marks = ["--:" if _numeric(table, index) else "---" for index in range(len(table.columns))]
        lines += ["", *(f"| {' | '.join(row)} |" for row in (map(_cell, table.columns), marks))]
        lines += [f"| {' | '.join(map(_cell, row))} |" for row in table.rows]
        lines += ["", "</details>"] if table.folded else []
    lines += [line for note in table.notes for line in ("", _cell(note))]
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Return the text escaped for GitHub: no markup, mentions or references, but `https` addresses stay links."""
    lines = (" ".join(map(_word, line.split())) for line in text.splitlines())
    return "<br>".join(lines)


def _word(text: str) -> str:
    return text if _ADDRESS.fullmatch(text) else _CALLS.sub(r"\1&#8203;", _MARKS.sub(r"\\\g<0>", text))


def _numeric(table: Table, index: int) -> bool:
    cells = [row[index] for row in table.rows if row[index] not in ("", "-", UNKNOWN)]
    return bool(cells) and all(cell.lstrip("+-$")[:1].isdigit() and " x " not in cell for cell in cells)
