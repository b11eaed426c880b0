"""How the answer of a `multislice` command is written: for a person, for a program, or for a pull request."""

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from infra.review.table import Table


class Form(StrEnum):
    """Of an answer."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


def form(*, as_json: bool) -> Form:
    """Of a command that has these two alone."""
    return Form.JSON if as_json else Form.TEXT


def write(as_json: str, tables: "Sequence[Table]", form: Form, console: Console) -> None:
    """Write the answer in that form: the whole of it as JSON, or what a person reads of it."""
    # Commands that fail early, or show their help, do without the program's modules.
    from infra.review.table import WIDTH, as_markdown, renderable

    if form is Form.JSON:
        console.out(as_json)
    elif form is Form.MARKDOWN:
        console.out(as_markdown(tables))
    else:
        console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
        console.print(renderable(tables))


def tell(as_json: str | None, title: str, verdict: str, lines: Sequence[str], console: Console) -> None:
    """Write a short answer, as JSON if there is one; lines are never wrapped, for commands and paths are copied."""
    if as_json is not None:
        console.out(as_json)
        return
    console.print(Text.assemble((title, "bold"), "  ", (verdict, "green")))
    for line in lines:
        console.print(Text(line, style="dim"), soft_wrap=True)
