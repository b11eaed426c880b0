"""Options that several commands have."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cli.answer import Form
from cli.completion import jobs, stacks
from cli.halt import exit_status

Stack = Annotated[
    str, typer.Option("--stack", "-s", help="Name of the file stacks/Pulumi.STACK.yaml.", autocompletion=stacks)
]
Json = Annotated[bool, typer.Option("--json", help="Everything, as one JSON object.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="For a comment on a pull request.")]
Job = Annotated[
    str | None,
    typer.Argument(metavar="JOB", help="Name of a job. Unset: the stack's only one.", autocompletion=jobs),
]


class Engine(StrEnum):
    """Whose Pulumi, state and cloud."""

    PULUMI = "pulumi"
    SANDBOX = "sandbox"


On = Annotated[
    Engine, typer.Option("--engine", help="Your own Pulumi and its backend, or the sandbox on this machine.")
]
Sandbox = Annotated[Path, typer.Option("--sandbox", metavar="DIR", help="Folder of the sandbox.")]


def folder_of(engine: Engine, sandbox: Path) -> Path | None:
    """Of the sandbox that is asked; None: the user's own Pulumi is."""
    return sandbox if engine is Engine.SANDBOX else None


def run(command: Callable[[], int]) -> None:
    """Carry out a command; its number is the exit status."""
    raise typer.Exit(exit_status(command))


def form_of(json: bool, markdown: bool) -> Form:
    """How an answer is written that may be either."""
    if json and markdown:
        raise typer.BadParameter("expected one of --json and --markdown, got both; leave one out")
    return Form.JSON if json else Form.MARKDOWN if markdown else Form.TEXT
