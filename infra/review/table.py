"""Answers and tables of a review, as text for terminals and logs and as Markdown for comments."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape as escape_html
from io import StringIO
from itertools import groupby
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


State = Literal["good", "notable", "bad"]
"""State of an answer: fine, worth a look, or the plan cannot run."""

_ADDRESS = re.compile(r"https://[\w./:?=&%#~+,-]*[\w/]", re.ASCII)
_MARKS = re.compile(r"[\\|*_<>`\[\]~!&]")
_CALLS = re.compile(r"((?<!\w)[@#])(?=\w)")
"""Start of a mention of a person or team, or of a reference to an issue."""
_COLOURS: dict[State, str] = {"good": "green", "notable": "yellow", "bad": "bold red"}


@dataclass(frozen=True)
class Answer:
    """One question and its answer, on one line."""

    title: str
    verdict: str
    """The answer in a few words."""
    state: State


@dataclass(frozen=True)
class Table(Answer):
    """One question, its answer, and the details in rows and notes."""

    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()
    whole: Sequence[int] = ()
    """Columns with short cells, which are not wrapped."""
    spare: Sequence[int] = ()
    """Columns to leave out of a terminal that is too narrow for all, the first one first."""
    folded: bool = False
    """Whether a comment hides the details until a reader expands them."""


def renderable(answers: Iterable[Answer]) -> RenderableType:
    """Return answers and tables for rich, which omits colours if there is no terminal."""
    return Group(*(part for each in _grouped(answers) for part in _parts(each)))


def as_text(answers: Iterable[Answer]) -> str:
    """Return answers and tables as plain text, at most `WIDTH` columns wide."""
    console = Console(file=StringIO(), width=WIDTH, color_system=None)
    with console.capture() as captured:
        console.print(renderable(answers))
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).strip("\n")


def as_markdown(answers: Iterable[Answer]) -> str:
    """Return answers and tables as a comment on a pull request."""
    return "\n\n".join(_markdown(each) for each in _grouped(answers))


def _grouped(answers: Iterable[Answer]) -> Iterator[Table | list[Answer]]:
    """Yield each table, and answers without details that follow each other as one list."""
    for is_table, group in groupby(answers, lambda each: isinstance(each, Table)):
        if is_table:
            yield from (each for each in group if isinstance(each, Table))
        else:
            yield list(group)


def _parts(table: Table | list[Answer]) -> Iterable[RenderableType]:
    if isinstance(table, list):
        yield from (_Lines(table), Text())
        return
    yield Text.assemble((table.title, "bold"), "  ", (table.verdict, _COLOURS[table.state]))
    if table.rows:
        yield _Grid(table)
    yield from (Text(note, style="dim") for note in table.notes)
    yield Text()


@dataclass(frozen=True)
class _Lines:
    """Answers below each other. A long one continues below its beginning."""

    answers: Sequence[Answer]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        indent = max(cell_len(answer.title) for answer in self.answers) + 2
        for answer in self.answers:
            told = Text(answer.verdict, style=_COLOURS[answer.state])
            for index, line in enumerate(told.wrap(console, max(1, options.max_width - indent))):
                line.rstrip()
                yield Text.assemble(((answer.title if index == 0 else "").ljust(indent), "bold"), line)


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
    found = [*widths]
    return sum(found) + _GAP * (len(found) - 1)


def _markdown(table: Table | list[Answer]) -> str:
    if isinstance(table, list):
        return "\n".join(f"- **{each.title}:** {_cell(each.verdict)}" for each in table)
    if table.folded:
        lines = [f"<details><summary><b>{table.title}</b>: {_in_html(table.verdict)}</summary>"]
    else:
        lines = [f"### {table.title}", "", f"**{_cell(table.verdict)}**"]
    if table.rows:
        marks = ["--:" if _numeric(table, index) else "---" for index in range(len(table.columns))]
        lines += ["", *(f"| {' | '.join(row)} |" for row in (map(_cell, table.columns), marks))]
        lines += [f"| {' | '.join(map(_cell, row))} |" for row in table.rows]
    lines += [line for note in table.notes for line in ("", _cell(note))]
    return "\n".join([*lines, "", "</details>"] if table.folded else lines)


def _in_html(text: str) -> str:
    """Return the text for a line of HTML, in which GitHub reads no Markdown but still finds mentions."""
    return _CALLS.sub(r"\1&#8203;", escape_html(" ".join(text.split())))


def _cell(text: str) -> str:
    """Return the text escaped for GitHub: no markup, mentions or references, but `https` addresses stay links."""
    lines = (" ".join(map(_word, line.split())) for line in text.splitlines())
    return "<br>".join(lines)


def _word(text: str) -> str:
    return text if _ADDRESS.fullmatch(text) else _CALLS.sub(r"\1&#8203;", _MARKS.sub(r"\\\g<0>", text))


def _numeric(table: Table, index: int) -> bool:
    cells = [row[index] for row in table.rows if row[index] not in ("", "-", UNKNOWN)]
    return bool(cells) and all(cell.lstrip("+-$")[:1].isdigit() and " x " not in cell for cell in cells)
