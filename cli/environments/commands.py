"""The commands `multislice env`, which manage environments: copies of a stack that expire."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.answer import Form
from cli.options import Engine, On, Output, Sandbox, TableOutput, folder_of
from workloads.terminal import Terminal

if TYPE_CHECKING:
    from cli.environments.backend import Backend

environments = typer.Typer(name="env", help="Manage environments: copies of a stack that expire.", no_args_is_help=True)


@environments.command("create")
def create_environment(
    name: Annotated[str, typer.Argument(help="Name of the new stack and its cluster; at most 20 characters.")],
    source: Annotated[str, typer.Option("--from", metavar="STACK", help="Name of the stack to copy.")],
    ttl: Annotated[str, typer.Option(help="Time until it expires, such as 90m, 8h or 2d.")],
    only_file: Annotated[bool, typer.Option("--only-file", help="Write the files without deploying.")] = False,
    engine: On = None,
    sandbox: Sandbox = None,
    output: Output = "text",
) -> int:
    """Create an environment from a stack and deploy it."""
    from cli.environments import create as command
    from cli.environments.files import files_of_project

    wish = command.Wish(name, source, ttl)
    backend = None if only_file else _backend(source, engine, sandbox)
    return command.create(wish, backend, files_of_project(), _now(), Form(output), Terminal(highlight=False))


@environments.command("destroy")
def destroy_environment(
    name: Annotated[str | None, typer.Argument(help="Name of the environment.")] = None,
    expired: Annotated[bool, typer.Option("--expired", help="Destroy all expired environments.")] = False,
    engine: On = None,
    sandbox: Sandbox = None,
    output: TableOutput = Form.TEXT,
) -> int:
    """Destroy an environment with its running jobs and checkpoints. Exit status 1: some resources remain."""
    if (name is None) != expired:
        raise typer.BadParameter("expected one of NAME and --expired, got both or neither")
    from cli.environments import destroy as command
    from cli.environments.files import files_of_project

    return command.destroy(
        name, _backend(name, engine, sandbox), files_of_project(), _now(), output, Terminal(highlight=False)
    )


@environments.command("list")
def list_environments(
    expired: Annotated[bool, typer.Option("--expired", help="List only expired environments.")] = False,
    engine: On = None,
    sandbox: Sandbox = None,
    output: TableOutput = Form.TEXT,
) -> int:
    """List environments of the backend. Exit status 1: a stack cannot be read; 2: with --expired, some have expired."""
    from cli.environments import listing as command
    from cli.environments.files import files_of_project

    backend = _backend(None, engine, sandbox)
    return command.show(backend, files_of_project(), _now(), output, Terminal(highlight=False), expired=expired)


def _backend(stack: str | None, engine: Engine | None, sandbox: Path | None) -> "Backend":
    from cli.environments.backend import Backend, SandboxBackend
    from cli.environments.files import files_of_project
    from sandbox.stacks import SandboxStacks, stacks_in

    stacks, files = stacks_in(folder_of(stack, engine, sandbox)), files_of_project()
    return SandboxBackend(files, stacks) if isinstance(stacks, SandboxStacks) else Backend(files, stacks)


def _now() -> datetime:
    return datetime.now(UTC)
