"""Environments: copies of a stack that end by themselves."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.commands.options import Engine, Json, Markdown, On, Sandbox, folder_of, form_of, run
from workloads.terminal import Terminal

if TYPE_CHECKING:
    from cli.environments.backend import Backend

commands = typer.Typer(name="env", help="Environments: copies of a stack that end by themselves.", no_args_is_help=True)


@commands.command("create")
def create_environment(
    name: Annotated[str, typer.Argument(help="Of the new stack and its cluster; at most 20 characters.")],
    source: Annotated[str, typer.Option("--from", metavar="STACK", help="Name of the stack to copy.")],
    ttl: Annotated[str, typer.Option(help="Time until it ends, such as 90m, 8h or 2d.")],
    only_file: Annotated[bool, typer.Option("--only-file", help="Write its files and bring nothing up.")] = False,
    engine: On = None,
    sandbox: Sandbox = None,
    json: Json = False,
) -> None:
    """Make an environment from a stack and bring it up."""
    from cli.answer import form
    from cli.environments import create as command
    from cli.environments.files import OURS

    def answer() -> int:
        wish = command.Wish(name, source, ttl)
        backend = None if only_file else _backend(engine, sandbox)
        return command.create(wish, backend, OURS, _now(), form(as_json=json), Terminal(highlight=False))

    run(answer)


@commands.command("destroy")
def destroy_environment(
    name: Annotated[str | None, typer.Argument(help="Of the environment.")] = None,
    expired: Annotated[bool, typer.Option("--expired", help="All whose time is over.")] = False,
    engine: On = None,
    sandbox: Sandbox = None,
    json: Json = False,
    markdown: Markdown = False,
) -> None:
    """Destroy an environment, running jobs and checkpoints with it. Exit status 1: something is left."""
    form = form_of(json, markdown)
    if (name is None) != expired:
        raise typer.BadParameter("expected one of NAME and --expired, got both or neither")
    from cli.environments import destroy as command
    from cli.environments.files import OURS

    run(lambda: command.destroy(name, _backend(engine, sandbox), OURS, _now(), form, Terminal(highlight=False)))


@commands.command("list")
def list_environments(
    expired: Annotated[bool, typer.Option("--expired", help="Those alone whose time is over.")] = False,
    engine: On = None,
    sandbox: Sandbox = None,
    json: Json = False,
    markdown: Markdown = False,
) -> None:
    """Environments that the backend knows. Exit status 1: a stack cannot be read; 2: with --expired, there are some."""
    form = form_of(json, markdown)
    from cli.environments import listing as command
    from cli.environments.files import OURS

    def answer() -> int:
        backend = _backend(engine, sandbox)
        return command.show(backend, OURS, _now(), form, Terminal(highlight=False), expired=expired)

    run(answer)


def _backend(engine: Engine | None, sandbox: Path | None) -> "Backend":
    from cli.environments.backend import PulumiBackend, SandboxBackend
    from cli.environments.files import OURS

    folder = folder_of(engine, sandbox)
    return SandboxBackend(folder, OURS) if folder else PulumiBackend(OURS)


def _now() -> datetime:
    return datetime.now(UTC)
