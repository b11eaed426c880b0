"""Shows what a run spent as tables of text, in a terminal and on the page.

The numbers are calculated in `goodput`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from workloads.report.goodput import Goodput, Loss, Spent, StartSpent
from workloads.report.mesh_text import counted, select

WIDTH = 100
"""Width in columns that fits every log and terminal."""

STARTS_SHOWN = 8
"""Number of attempts to show. If there are more, the first ones and the last one are shown."""

BEYOND_THE_LEDGER = (
    "The time in the queue before the first attempt and nodes that remain after the end are not included. Downtime is"
    " priced as if the slices were kept."
)


@dataclass(frozen=True)
class Table:
    """Cells in columns. All columns except the first are numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


def tables(spent: Goodput) -> Iterator[Table]:
    """Yield the tables of the whole run, of faults and of each attempt."""
    yield by_cause("Where the time went", spent)
    if spent.losses:
        yield by_fault(spent.losses)
    for start in shown(spent):
        yield by_cause(f"{start.name}: {start.ending}", start)


def shown(spent: Goodput) -> list[StartSpent]:
    """Return the attempts to show one by one. Empty if there is only one."""
    places = select(len(spent.starts), STARTS_SHOWN) if len(spent.starts) > 1 else []
    return [spent.starts[place] for place in places if place is not None]


def by_cause(title: str, spent: Spent) -> Table:
    """Return a table with a row for each part and one for the total."""
    rows = [(part.name, *_amounts(part.seconds, part.usd, spent.seconds)) for part in spent.parts]
    total = ("all", *_amounts(spent.seconds, spent.usd, spent.seconds))
    return Table(title, ("cause", "time", "dollars", "share"), [*rows, total])


def by_fault(losses: Sequence[Loss]) -> Table:
    """Return a table with a row for each kind of fault, the most expensive first."""
    columns = ("after", "lost work", "hung", "down", "restart", "time", "dollars")
    rows: list[tuple[str, ...]] = []
    for loss in losses:
        parts = (loss.lost_work_seconds, loss.hung_seconds, loss.down_seconds, loss.restart_seconds)
        rows.append((loss.after, *map(duration, parts), duration(loss.seconds), dollars(loss.usd)))
    return Table("What faults cost", columns, rows)


def notes(spent: Goodput) -> Iterator[str]:
    """Yield sentences about what the tables leave out."""
    if len(spent.starts) > STARTS_SHOWN:
        left_out = counted(len(spent.starts) - STARTS_SHOWN, "attempt")
        yield f"{left_out} between the first and the last ones are left out; `--json` shows them."
    if spent.unpriced:
        numbers = ", ".join(map(str, spent.unpriced))
        yield f"The price of the job is unknown in attempt {numbers}, which no sum of dollars includes."
    yield BEYOND_THE_LEDGER


def write(spent: Goodput, console: Console) -> None:
    """Print all tables."""
    console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
    console.print(Group(*(part for table in tables(spent) for part in _parts(table))))
    for note in notes(spent):
        console.print(Text(note, style="dim"))


def duration(seconds: float) -> str:
    """Format seconds for people."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"


def dollars(usd: float | None) -> str:
    """Format an amount of dollars, which may be unknown."""
    return "unknown" if usd is None else f"${usd:,.2f}"


def _amounts(seconds: float, usd: float | None, whole: float) -> tuple[str, str, str]:
    share = 100 * seconds / whole if whole else 0.0
    return duration(seconds), dollars(usd), f"{share:.1f} %"


def _parts(table: Table) -> Iterator[RenderableType]:
    yield Text(table.title, style="bold")
    grid = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1), header_style="dim")
    for place, column in enumerate(table.columns):
        grid.add_column(column, justify="right" if place else "left", overflow="fold")
    for row in table.rows:
        grid.add_row(*map(Text, row))
    yield grid
    yield Text()
