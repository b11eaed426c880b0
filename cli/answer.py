"""Writes the answer of a `multislice` command as text, JSON or Markdown, or ends it early with an error."""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import StrEnum
from importlib import metadata
from typing import TYPE_CHECKING

from pydantic_core import to_json
from rich.console import Console
from rich.text import Text

from infra.stack.command_lines import DISTRIBUTION, UserError, installing
from workloads.terminal import Terminal, inert

if TYPE_CHECKING:
    from infra.review.table import Answer

NEGATIVE = 2
"""Exit status of an answer to act on: a job failed or cannot run, drift was found, or a check failed."""
INTERRUPTED = 130
"""Exit status after Ctrl-C, as in shells."""
UNREAD = 141
"""Exit status if the reader of the output, such as `head`, has closed the pipe, as in shells."""


class Halt(UserError):
    """Raised to end a command. The message says what was expected, what was found, and what to do next.

    Any command raises it, or another UserError, for what its user has to correct.
    """

    def __init__(self, message: str, exit_status: int = 1) -> None:
        super().__init__(message)
        self.exit_status = exit_status


def write_error(message: str, *, in_json: bool) -> None:
    """Write an error to stderr, as text or as one JSON object `{"error": MESSAGE}`."""
    sys.stderr.write(f"{as_json({'error': message}, indent=None)}\n" if in_json else inert(f"{message}\n"))


def exit_status(command: Callable[[], int], *, in_json: bool = False) -> int:
    """Run `command` and return its exit status. Errors go to stderr as a message without a traceback."""
    try:
        status = command()
        # Flush here, so that an error in writing the rest counts as an error of the command.
        sys.stdout.flush()
    except UserError as error:
        write_error(str(error), in_json=in_json)
        return error.exit_status if isinstance(error, Halt) else 1
    except ImportError as error:
        if (advice := _advice(error)) is None:
            raise
        write_error(advice, in_json=in_json)
        return 1
    except (KeyboardInterrupt, EOFError):  # Ctrl-C, or Ctrl-D at a question.
        write_error("stopped", in_json=in_json)
        return INTERRUPTED
    except (BrokenPipeError, SystemExit):
        # Rich raises SystemExit if the reader has closed the pipe.
        return discard_output()
    return status


def _advice(error: ImportError) -> str | None:
    """Return how to install a package that is missing. `None` if no extra of this one has it."""
    # fsspec raises another error, whose cause is that of Python.
    cause = error.__cause__ if isinstance(error.__cause__, ImportError) else error
    package = (cause.name or "").partition(".")[0].replace("_", "-")
    wanted = re.compile(rf"{re.escape(package)}(?![\w-]).*extra == \"(\w+)\"")
    found = next(filter(None, map(wanted.match, metadata.requires(DISTRIBUTION) or ())), None)
    return f"this needs the package {package}; install it with {installing(found[1])}" if found else None


def discard_output() -> int:
    """Write the rest of the output, which has no reader, to nowhere. Return the exit status."""
    # Python would try to write the rest at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return UNREAD


def agree(question: str) -> None:
    """Ask the user for a confirmation. Raise Halt without one."""
    if not (sys.stdin and sys.stdin.isatty()):
        raise Halt(f"{question}\nThis needs a confirmation, and stdin is not a terminal; pass --yes")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise Halt("nothing was changed")


class Form(StrEnum):
    """Output format of an answer."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


def waiting(text: str) -> AbstractContextManager[object]:
    """Show `text` with a spinner on a terminal until the context ends. It goes to stderr, away from the answer."""
    return Terminal(stderr=True).status(text)


def write(as_json: str, answers: "Sequence[Answer]", form: Form, console: Console) -> None:
    """Write an answer in the format `form`: `as_json`, or the answers and tables."""
    # Commands that fail early or show their help do not need the program's modules.
    from infra.review.table import WIDTH, as_markdown, renderable

    if form is Form.JSON:
        console.out(as_json)
    elif form is Form.MARKDOWN:
        console.out(as_markdown(answers))
    else:
        console.width = min(console.width, WIDTH) if console.is_terminal else WIDTH
        console.print(renderable(answers))


def write_short(
    answer: Mapping[str, object] | None, title: str, verdict: str, lines: Sequence[str], console: Console
) -> None:
    """Write a short text, or `answer` as JSON unless it is None. Lines never wrap: users copy commands and paths."""
    if answer is not None:
        console.out(as_json(answer))
        return
    console.print(Text.assemble((title, "bold"), "  ", (verdict, "green")))
    for line in lines:
        console.print(Text(line, style="dim"), soft_wrap=True)


def as_json(answer: Mapping[str, object], indent: int | None = 1) -> str:
    """Return one JSON object. Numbers that are not finite become null, because JSON does not have them."""
    return to_json(answer, indent=indent, inf_nan_mode="null").decode()
