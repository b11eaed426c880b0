"""What a run spent, as tables in words, for a terminal and for the page.

Owns titles, columns and units, and how a terminal shows them; the numbers are those of `goodput`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from workloads.report.goodput import Goodput, Loss, Spent
from workloads.report.mesh_text import counted, shown

WIDTH = 100
"""Columns that a log and a terminal surely have."""

STARTS_SHOWN = 8
"""Of more starts, the first ones and the last."""

BEYOND_THE_LEDGER = (
    "The first wait in the queue is not in it, nor are nodes that stand after the end. Time that the run was down costs"
    " as if its slices stood by."
)


@dataclass(frozen=True)
class Table:
    """Words in columns; all but the first are numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def tables(spent: Goodput) -> Iterator[Table]:
    """In all, by what went wrong, and by start."""
    yield by_cause("Where the time went", spent)
    if spent.losses:
        yield by_fault(spent.losses)
    for place in shown(len(spent.starts), STARTS_SHOWN) if len(spent.starts) > 1 else ():
        if place is not None:
            start = spent.starts[place]
            yield by_cause(f"{start.name}: {start.ending}", start)


def by_cause(title: str, spent: Spent) -> Table:
    """One row for each part, and one for all."""
    rows = [(part.name, *_amounts(part.seconds, part.usd, spent.seconds)) for part in spent.parts]
    total = ("all", *_amounts(spent.seconds, spent.usd, spent.seconds))
    return Table(title, ("cause", "time", "dollars", "share"), [*rows, total])


def by_fault(losses: Sequence[Loss]) -> Table:
    """One row for each kind of fault, the dearest first."""
    columns = ("after", "lost work", "hung", "down", "restart", "time", "dollars")
    return Table("What faults cost", columns, [_loss(loss) for loss in losses])


def notes(spent: Goodput) -> Iterator[str]:
    """What the tables do not tell."""
    if len(spent.starts) > STARTS_SHOWN:
        left_out = counted(len(spent.starts) - STARTS_SHOWN, "start")
        yield f"{left_out} between the first and the last ones are in --json."
    if spent.unpriced:
        numbers = ", ".join(map(str, spent.unpriced))
        yield f"The price of the job is unknown in start {numbers}: no sum of dollars has it."
    yield BEYOND_THE_LEDGER


def write(spent: Goodput, console: Console) -> None:
    """Print all tables."""
    console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    console.print(Group(*(part for table in tables(spent) for part in _parts(table))))
    for note in notes(spent):
        console.print(Text(note, style="dim"))


def duration(seconds: float) -> str:
    """Seconds, as one says it."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"


def dollars(usd: float | None) -> str:
    """An amount, as far as it is known."""
    return "unknown" if usd is None else f"${usd:,.2f}"


def _amounts(seconds: float, usd: float | None, whole: float) -> tuple[str, str, str]:
    share = 100 * seconds / whole if whole else 0.0
    return duration(seconds), dollars(usd), f"{share:.1f} %"


def _loss(loss: Loss) -> tuple[str, ...]:
    parts = (loss.lost_work_seconds, loss.hung_seconds, loss.down_seconds, loss.restart_seconds, loss.seconds)
    return (loss.after, *map(duration, parts), dollars(loss.usd))


def _parts(table: Table) -> Iterator[RenderableType]:
    yield Text(table.title, style="bold")
    grid = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1), header_style="dim")
    for place, column in enumerate(table.columns):
        grid.add_column(column, justify="right" if place else "left", overflow="fold")
    for row in table.rows:
        grid.add_row(*map(Text, row))
    yield grid
    yield Text()
