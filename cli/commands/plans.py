"""What a plan costs, whether it goes and how fast; nothing needs to stand."""

import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cli.commands.options import Engine, Json, Markdown, On, Sandbox, Stack, folder_of, form_of, run
from workloads.terminal import Terminal

commands = typer.Typer()


class Order(StrEnum):
    """What comes first."""

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
        Path | None, typer.Option(metavar="FILE", help="What `pulumi stack output --json` printed, to compare with.")
    ] = None,
    workloads: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What `kubectl get workloads -A -o json` printed.")
    ] = None,
    json: Json = False,
    markdown: Markdown = False,
) -> None:
    """Price, queue, memory and pace of a stack. Exit status 2: a job cannot run, or `up` refuses."""
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
        Path | None, typer.Option(metavar="FILE", help="For `pulumi up --plan FILE`: this plan and nothing else.")
    ] = None,
    sandbox: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="A sandbox of `make up`, whose state to compare with.")
    ] = None,
    json: Json = False,
    markdown: Markdown = False,
) -> None:
    """Changes, rules, price and queue of a stack, by a real engine. Exit status 2: a rule or the job forbids it."""
    form = form_of(json, markdown)
    from cli import preview as command

    asked = command.Asked(stack, engine.value, save_plan, sandbox)
    run(lambda: command.preview(asked, form, Terminal(highlight=False)))


@commands.command()
def preflight(
    stack: Stack,
    compile_cache: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Leave the compiled programs there; also gs://BUCKET/FOLDER."),
    ] = None,
    compare_compile: Annotated[
        bool, typer.Option("--compare-compile", help="Also compile with the other choice of `compile`, and compare.")
    ] = False,
    json: Json = False,
    markdown: Markdown = False,
) -> None:
    """Compile a stack's training jobs for their chips here: do they fit, how fast. Exit status 2: one does not fit."""
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
    preset: Annotated[str, typer.Option(help="A file of workloads/presets, by name.")],
    tokens: Annotated[
        float, typer.Option(parser=_amount, metavar="NUMBER", help="To train on, such as 1e12, 800B or 15T.")
    ],
    days: Annotated[float, typer.Option(help="Time that there is.")],
    by: Annotated[Order, typer.Option(help="What comes first.")] = Order.DOLLARS,
    zone: Annotated[str | None, typer.Option(help="Whose prices hold. Unset: wherever chips are cheapest.")] = None,
    capacity: Annotated[Listed, typer.Option(help="Whose list prices hold.")] = Listed.ON_DEMAND,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw cost against time.")] = None,
    json: Json = False,
    markdown: Markdown = False,
) -> None:
    """The slices that would train a preset in time, from a table of compiled steps. Exit status 2: none would."""
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
    """What others changed in a stack's objects, and what `up` would do about it. Exit status 2: there is drift."""
    form = form_of(json, markdown)
    from cli import drift as command

    run(lambda: command.drift(stack, folder_of(engine, sandbox), form, Terminal(highlight=False)))
