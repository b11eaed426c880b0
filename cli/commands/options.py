"""Options that several commands have."""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cli.answer import Form
from cli.completion import jobs, stacks
from cli.halt import Halt, exit_status
from cli.sandbox_folder import SANDBOX

Stack = Annotated[
    str, typer.Option("--stack", "-s", help="Name of the file stacks/Pulumi.STACK.yaml.", autocompletion=stacks)
]
Json = Annotated[bool, typer.Option("--json", help="Everything, as one JSON object.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="For a comment on a pull request.")]
Job = Annotated[
    str | None,
    typer.Argument(
        metavar="JOB",
        help="Name of a job, or NAMESPACE/JOB where several namespaces have one. Unset: the stack's only one.",
        autocompletion=jobs,
    ),
]


class Engine(StrEnum):
    """Whose Pulumi, state and cloud."""

    PULUMI = "pulumi"
    SANDBOX = "sandbox"


On = Annotated[
    Engine | None,
    typer.Option(
        "--engine",
        help="Your own Pulumi and its backend, or the sandbox on this machine. Default: pulumi, or sandbox with"
        " --sandbox.",
    ),
]
Sandbox = Annotated[
    Path | None, typer.Option("--sandbox", metavar="DIR", help=f"Folder of the sandbox. Default: {SANDBOX}.")
]


def folder_of(engine: Engine | None, sandbox: Path | None) -> Path | None:
    """Return the folder of the sandbox to ask; None asks the user's own Pulumi.

    Raises:
        Halt: the folder of a sandbox is given for the other engine.
    """
    if engine is Engine.PULUMI and sandbox:
        raise Halt(f"--sandbox goes with --engine sandbox, got {sandbox}; leave one out")
    return (sandbox or SANDBOX) if engine is Engine.SANDBOX or sandbox else None


def run(command: Callable[[], int]) -> None:
    """Carry out a command; its number is the exit status."""
    raise typer.Exit(exit_status(command))


def form_of(json: bool, markdown: bool) -> Form:
    """How an answer is written that may be either."""
    if json and markdown:
        raise typer.BadParameter("expected one of --json and --markdown, got both; leave one out")
    return Form.JSON if json else Form.MARKDOWN if markdown else Form.TEXT
