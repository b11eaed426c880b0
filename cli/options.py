"""Options that several commands have, and what a shell offers to complete them.

Stacks and jobs are looked up in the stack files of this checkout, so that pressing Tab does not wait for a cluster. A
file that cannot be read offers nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cli import stack_file
from cli.answer import Form
from cli.halt import Halt, exit_status
from cli.sandbox_folder import SANDBOX


def complete_stacks(incomplete: str) -> list[str]:
    """Return the stacks that have a file, and whose names begin so."""
    return _beginning(incomplete, stack_file.names())


def complete_jobs(context: typer.Context, incomplete: str) -> list[str]:
    """Return the jobs whose names begin so, of the stack that the command line names before, or else of any."""
    return _beginning(incomplete, names_of_jobs(context.params.get("stack")))


def names_of_jobs(stack: str | None) -> list[str]:
    """Return the jobs in the file of a stack; None: in the files of all."""
    return sorted({name for each in ([stack] if stack else stack_file.names()) for name in _jobs_of(each)})


def _jobs_of(stack: str) -> list[str]:
    try:
        sections = stack_file.sections(stack_file.content(stack_file.find(stack))["config"])
    except Halt:
        return []
    several, only = sections.get("jobs"), sections.get("job")
    named = only.get("name") if isinstance(only, Mapping) else None
    return [str(name) for name in (*(several if isinstance(several, Mapping) else ()), named) if name]


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete)})


Stack = Annotated[
    str,
    typer.Option(
        "--stack", "-s", help="Name of the stack file stacks/Pulumi.STACK.yaml.", autocompletion=complete_stacks
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown for a comment on a pull request.")]
Job = Annotated[
    str | None,
    typer.Argument(
        metavar="JOB",
        help="Name of a job, or NAMESPACE/JOB if several namespaces have one. Default: the stack's only job.",
        autocompletion=complete_jobs,
    ),
]


class Engine(StrEnum):
    """Whose Pulumi, state and cloud a command uses."""

    PULUMI = "pulumi"
    SANDBOX = "sandbox"


On = Annotated[
    Engine | None,
    typer.Option(
        "--engine",
        help="pulumi: your own Pulumi and its backend; sandbox: the sandbox on this machine. Default: pulumi, or"
        " sandbox with --sandbox.",
    ),
]
Sandbox = Annotated[
    Path | None, typer.Option("--sandbox", metavar="DIR", help=f"Folder of the sandbox. Default: {SANDBOX}.")
]


def folder_of(engine: Engine | None, sandbox: Path | None) -> Path | None:
    """Return the folder of the sandbox to use; None: use the user's own Pulumi.

    Raises:
        Halt: the folder of a sandbox is given for the other engine.
    """
    if engine is Engine.PULUMI and sandbox:
        raise Halt(f"--sandbox goes with --engine sandbox, got {sandbox}; leave one out")
    return (sandbox or SANDBOX) if engine is Engine.SANDBOX or sandbox else None


def run(command: Callable[[], int]) -> None:
    """Run a command; its number is the exit status."""
    raise typer.Exit(exit_status(command))


def form_of(json: bool, markdown: bool) -> Form:
    """Return the form of an answer from the two options."""
    if json and markdown:
        raise typer.BadParameter("expected one of --json and --markdown, got both; leave one out")
    return Form.JSON if json else Form.MARKDOWN if markdown else Form.TEXT
