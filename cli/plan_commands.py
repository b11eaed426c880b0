"""Command lines about a stack before it is deployed, and about environments, which are copies of a stack that expire.

What a command does is in the module of its name, which is loaded when the command runs.
"""

import re
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.answer import form
from cli.options import Engine, Json, Markdown, On, Sandbox, Stack, folder_of, form_of, run
from workloads.terminal import Terminal

if TYPE_CHECKING:
    from cli.environments.backend import Backend

commands = typer.Typer()
environments = typer.Typer(name="env", help="Manage environments: copies of a stack that expire.", no_args_is_help=True)


class Order(StrEnum):
    """What a plan is sorted by."""

    DOLLARS = "dollars"
    DAYS = "days"


class Listed(StrEnum):
    """Capacity that has a list price."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"


@commands.command()
def review(
    stack: Stack,
    outputs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Output of `pulumi stack output --json`, to compare with.")
    ] = None,
    workloads: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Output of `kubectl get workloads -A -o json`.")
    ] = None,
    json: Json = False,
    markdown: Markdown = False,
) -> None:
    """Review price, queue, memory and speed of a stack. Exit status 2: a job cannot run, or `up` refuses."""
    form = form_of(json, markdown)
    from cli import review as command

    run(lambda: command.review(stack, outputs, workloads, form, Terminal(highlight=False)))


@commands.command()
def preview(
    stack: Stack,
    engine: Annotated[
        Engine,
        typer.Option(help="sandbox: offline, from an empty state; pulumi: your own, against what is deployed."),
    ] = Engine.SANDBOX,
    save_plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File for the plan, for `pulumi up --plan FILE`.")
    ] = None,
    sandbox: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of a sandbox whose state to compare with.")
    ] = None,
    json: Json = False,
    markdown: Markdown = False,
) -> None:
    """Preview changes, policy, price and queue of a stack. Exit status 2: a rule forbids it, or a job cannot run."""
    form = form_of(json, markdown)
    from cli import preview as command

    asked = command.Asked(stack, engine.value, save_plan, sandbox)
    run(lambda: command.preview(asked, form, Terminal(highlight=False)))


@commands.command()
def preflight(
    stack: Stack,
    compile_cache: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Folder for the compiled programs, also gs://BUCKET/FOLDER."),
    ] = None,
    compare_compile: Annotated[
        bool, typer.Option("--compare-compile", help="Compile with the other choice of `compile` too, and compare.")
    ] = False,
    json: Json = False,
    markdown: Markdown = False,
) -> None:
    """Compile a stack's training jobs to see if they fit and how fast they are. Exit status 2: one does not fit."""
    form = form_of(json, markdown)
    from cli import preflight as command

    run(lambda: command.preflight(stack, form, compile_cache, Terminal(highlight=False), compare_compile))


def _amount(text: str) -> float:
    """The number that a text such as 15T stands for."""
    found = re.fullmatch(r"(\d[\d_]*(?:\.\d+)?(?:e\+?\d+)?)([kmbt]?)", text.strip().lower())
    if not found:
        raise typer.BadParameter(f"expected a number of tokens such as 1e12, 800B or 15T, got {text!r}")
    return float(found[1]) * 1000.0 ** " kmbt".index(found[2] or " ")


@commands.command()
def plan(
    preset: Annotated[str, typer.Option(help="Name of a file of workloads/presets.")],
    tokens: Annotated[
        float, typer.Option(parser=_amount, metavar="NUMBER", help="Tokens to train on, such as 1e12, 800B or 15T.")
    ],
    days: Annotated[float, typer.Option(help="Deadline, in days.")],
    by: Annotated[Order, typer.Option(help="What to sort by.")] = Order.DOLLARS,
    zone: Annotated[str | None, typer.Option(help="Zone of the prices. Default: where chips are cheapest.")] = None,
    capacity: Annotated[Listed, typer.Option(help="Capacity of the prices.")] = Listed.ON_DEMAND,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="File for a chart of cost against time.")] = None,
    json: Json = False,
    markdown: Markdown = False,
) -> None:
    """List the slices that train a preset by a deadline, from a table of compiled steps. Exit status 2: none does."""
    form = form_of(json, markdown)
    from cli import plan as command

    def answer() -> int:
        prices = command.chip_prices(zone, capacity.value)
        return command.plan(command.goal(preset, tokens, days), prices, by.value, svg, form, Terminal(highlight=False))

    run(answer)


@commands.command()
def drift(
    stack: Stack,
    engine: On = None,
    sandbox: Sandbox = None,
    json: Json = False,
    markdown: Markdown = False,
) -> None:
    """Show what was changed outside of Pulumi, and what `up` would do about it. Exit status 2: there is drift."""
    form = form_of(json, markdown)
    from cli import drift as command

    run(lambda: command.drift(stack, folder_of(engine, sandbox), form, Terminal(highlight=False)))


@environments.command("create")
def create_environment(
    name: Annotated[str, typer.Argument(help="Name of the new stack and its cluster; at most 20 characters.")],
    source: Annotated[str, typer.Option("--from", metavar="STACK", help="Name of the stack to copy.")],
    ttl: Annotated[str, typer.Option(help="Time until it expires, such as 90m, 8h or 2d.")],
    only_file: Annotated[bool, typer.Option("--only-file", help="Write its files and deploy nothing.")] = False,
    engine: On = None,
    sandbox: Sandbox = None,
    json: Json = False,
) -> None:
    """Create an environment from a stack and deploy it."""
    from cli.environments import create as command
    from cli.environments.files import OURS

    def answer() -> int:
        wish = command.Wish(name, source, ttl)
        backend = None if only_file else _backend(engine, sandbox)
        return command.create(wish, backend, OURS, _now(), form(as_json=json), Terminal(highlight=False))

    run(answer)


@environments.command("destroy")
def destroy_environment(
    name: Annotated[str | None, typer.Argument(help="Name of the environment.")] = None,
    expired: Annotated[bool, typer.Option("--expired", help="Destroy all that have expired.")] = False,
    engine: On = None,
    sandbox: Sandbox = None,
    json: Json = False,
    markdown: Markdown = False,
) -> None:
    """Destroy an environment with its running jobs and checkpoints. Exit status 1: something is left."""
    form = form_of(json, markdown)
    if (name is None) != expired:
        raise typer.BadParameter("expected one of NAME and --expired, got both or neither")
    from cli.environments import destroy as command
    from cli.environments.files import OURS

    run(lambda: command.destroy(name, _backend(engine, sandbox), OURS, _now(), form, Terminal(highlight=False)))


@environments.command("list")
def list_environments(
    expired: Annotated[bool, typer.Option("--expired", help="List only those that have expired.")] = False,
    engine: On = None,
    sandbox: Sandbox = None,
    json: Json = False,
    markdown: Markdown = False,
) -> None:
    """List environments of the backend. Exit status 1: a stack cannot be read; 2: with --expired, some have expired."""
    form = form_of(json, markdown)
    from cli.environments import listing as command
    from cli.environments.files import OURS

    def answer() -> int:
        backend = _backend(engine, sandbox)
        return command.show(backend, OURS, _now(), form, Terminal(highlight=False), expired=expired)

    run(answer)


def _backend(engine: Engine | None, sandbox: Path | None) -> "Backend":
    from cli.deployed import stacks
    from cli.environments.backend import backend
    from cli.environments.files import OURS

    return backend(OURS, stacks(folder_of(engine, sandbox)))


def _now() -> datetime:
    return datetime.now(UTC)
