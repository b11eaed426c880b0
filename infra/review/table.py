"""A table of a review, as text for terminals and logs and as Markdown for comments."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text

WIDTH = 100
"""Largest number of columns to use. Logs have as many."""
_GAP = 3
"""Columns between two cells: a space on each side of the divider."""

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
    spare: Sequence[int] = ()
    """Columns to leave out of a terminal that is too narrow for all, the first one first."""
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
        yield _Grid(table)
    yield from (Text(note, style="dim") for note in table.notes)
    yield Text()


@dataclass(frozen=True)
class _Grid:
    """The rows of a table. Lines break within a word only if there is no room for the longest words."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        table, widths = self.table, self._widths(options.max_width)
        grid = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1), header_style="dim")
        for index, width in widths.items():
            justify = "right" if _numeric(table, index) else "left"
            grid.add_column(table.columns[index], justify=justify, overflow="fold", width=width)
        for row in table.rows:
            grid.add_row(*(escape(row[index]) for index in widths))
        yield grid

    def _widths(self, available: int) -> Mapping[int, int]:
        """Return the columns to show, with their widths."""
        widths = {index: self._widest(index) for index in range(len(self.table.columns))}
        words = {index: self._longest_word(index) for index in widths}
        least = words | {index: widths[index] for index in self.table.whole}
        for index in self.table.spare:
            if _span(least.values()) > available:
                del widths[index], words[index], least[index]
        # Words break only if nothing else helps, and whole cells only before words.
        for wider, narrower in ((words, dict.fromkeys(words, 1)), (least, words), (widths, least)):
            _narrow(wider, narrower, available)
        return widths

    def _widest(self, index: int) -> int:
        return max(cell_len(line) for cell in self._cells(index) for line in cell.splitlines() or [""])

    def _longest_word(self, index: int) -> int:
        return max(cell_len(word) for cell in self._cells(index) for word in cell.split() or [""])

    def _cells(self, index: int) -> Iterator[str]:
        return (row[index] for row in (self.table.columns, *self.table.rows))


def _narrow(widths: dict[int, int], least: Mapping[int, int], available: int) -> None:
    """Make the widest columns narrower until all fit, or have their least width."""
    while _span(widths.values()) > available:
        wider = [index for index in widths if widths[index] > least[index]]
        if not wider:
            return
        widths[max(wider, key=lambda index: widths[index])] -= 1


def _span(widths: Iterable[int]) -> int:
    """Return the width of columns with the space between them."""
    found = [*widths]
    return sum(found) + _GAP * (len(found) - 1)


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
