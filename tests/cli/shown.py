"""Reads what a console shows as text and compares it with a golden file."""

import io
import os
from pathlib import Path

from rich.console import Console, RenderableType

GOLDEN = Path(__file__).parent / "golden"


def console(*, terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), width=100, highlight=False, force_terminal=terminal, color_system=None)


def read_output(console: Console) -> str:
    """Return everything that was written to the console."""
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def text(shown: RenderableType, columns: int, soft_wrap: bool = False) -> str:
    """Return what a terminal with this number of columns shows."""
    console = Console(width=columns, file=io.StringIO(), record=True, color_system=None)
    console.print(shown, soft_wrap=soft_wrap)
    return "\n".join(line.rstrip() for line in console.export_text().splitlines()) + "\n"


def check(name: str, shown: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(shown)
    assert shown == path.read_text()
