"""Options that several commands share, with shell completion.

Completion reads the stack files of this checkout, so that pressing Tab does not wait for a cluster. It ignores files
that cannot be read.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from cli import stack_file
from cli.answer import Form, Halt, exit_status
from cli.sandbox_folder import SANDBOX


def complete_stacks(incomplete: str) -> list[str]:
    """Return the stacks with a stack file whose names begin with `incomplete`."""
    return [name for name in stack_file.names() if name.startswith(incomplete)]


def complete_jobs(context: typer.Context, incomplete: str) -> list[str]:
    """Return the jobs whose names begin with `incomplete`, of the stack given before on the command line or of all."""
    return [name for name in names_of_jobs(context.params.get("stack")) if name.startswith(incomplete)]


def names_of_jobs(stack: str | None) -> list[str]:
    """Return the jobs in the file of a stack, or in all stack files if `stack` is None."""
    return sorted({name for each in ([stack] if stack else stack_file.names()) for name in _jobs_of(each)})


def _jobs_of(stack: str) -> list[str]:
    try:
        sections = stack_file.sections(stack_file.content(stack_file.find(stack))["config"])
    except Halt:
        return []
    several, only = sections.get("jobs"), sections.get("job")
    named = only.get("name") if isinstance(only, Mapping) else None
    return [str(name) for name in (*(several if isinstance(several, Mapping) else ()), named) if name]


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


_chosen: ContextVar[Mapping[str, str | None]] = ContextVar("kubectl")


def _kubectl(
    kubeconfig: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Kubeconfig of the cluster, without access to Pulumi. Default: as kubectl."),
    ] = None,
    context: Annotated[
        str | None, typer.Option(metavar="NAME", help="Context of the kubeconfig. Default: its current context.")
    ] = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", metavar="NAME", help="Namespace of your team. Default: that of the context."),
    ] = None,
) -> None:
    """Declare the options that select a stack by a namespace of its cluster. Each of them replaces `--stack`."""


class ClusterCommand(TyperCommand):
    """A command about a stack that Pulumi or a kubeconfig selects."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        declared = typer.Typer(add_completion=False)
        declared.command()(_kubectl)
        self._kubectl = typer.main.get_command(declared).params
        next(each for each in self.params if each.name == "stack").required = False
        self.params += self._kubectl

    def invoke(self, ctx: Any) -> Any:
        chosen = {str(each.name): ctx.params.pop(each.name) for each in self._kubectl}
        if ctx.params["stack"] is None and not any(chosen.values()):
            raise typer.BadParameter("expected --stack, or --namespace, --context or --kubeconfig, got none of them")
        _chosen.set(chosen)
        return super().invoke(ctx)


def kubectl() -> Mapping[str, str | None]:
    """Return the kubeconfig, context and namespace that the running command was given."""
    return _chosen.get()


class Commands(TyperGroup):
    """Exits with the status that a command returns, or with 1 after a wrong command line: typer's 2 has a meaning."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _without_answer():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        command = super().invoke
        with _without_answer():
            raise typer.Exit(exit_status(lambda: command(ctx)))


@contextmanager
def _without_answer() -> Generator[None]:
    try:
        yield
    except TyperException as error:
        error.exit_code = 1
        raise


Engine = Literal["pulumi", "sandbox"]
"""Pulumi engine that a command uses, with its state and cloud."""
On = Annotated[
    Engine | None,
    typer.Option(
        "--engine",
        help="pulumi: your own Pulumi and its backend. sandbox: the sandbox on this machine. Default: pulumi, or"
        " sandbox with --sandbox.",
    ),
]
Sandbox = Annotated[
    Path | None, typer.Option("--sandbox", metavar="DIR", help=f"Folder of the sandbox. Default: {SANDBOX}.")
]


def folder_of(engine: Engine | None, sandbox: Path | None) -> Path | None:
    """Return the folder of the sandbox to use. None: use the user's own Pulumi. Raise Halt if both are given."""
    if engine == "pulumi" and sandbox:
        raise Halt(f"--sandbox needs --engine sandbox, got --engine pulumi and --sandbox {sandbox}")
    return (sandbox or SANDBOX) if engine == "sandbox" or sandbox else None


def form_of(json: bool, markdown: bool) -> Form:
    """Return the output format that the two options select."""
    if json and markdown:
        raise typer.BadParameter("expected only one of --json and --markdown, got both")
    return Form.JSON if json else Form.MARKDOWN if markdown else Form.TEXT
