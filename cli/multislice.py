"""`multislice`: the commands about a stack, beside those of Pulumi.

Owns names, options and help texts; what a command does lies in the module of its name, which is loaded when it runs.
"""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cli.answer import Form
from cli.halt import exit_status

app = typer.Typer(
    name="multislice",
    help="What a stack of TPU slices will cost, whether it goes, and how fast.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Stack = Annotated[str, typer.Option("--stack", "-s", help="Name of the file stacks/Pulumi.STACK.yaml.")]
Json = Annotated[bool, typer.Option("--json", help="Everything, as one JSON object.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="For a comment on a pull request.")]


class EngineKind(StrEnum):
    """Whose Pulumi runs."""

    SANDBOX = "sandbox"
    PULUMI = "pulumi"


class Order(StrEnum):
    """What comes first."""

    DOLLARS = "dollars"
    DAYS = "days"


class Listed(StrEnum):
    """Capacity that has a list price."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"


@app.command()
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
    """Price, queue, memory and pace of a stack. Exit status 2: its job cannot run."""
    form = _form(json, markdown)
    from cli import review as command

    _run(lambda: command.review(stack, outputs, workloads, form, Console(highlight=False)))


@app.command()
def preview(
    stack: Stack,
    engine: Annotated[
        EngineKind,
        typer.Option(help="sandbox: offline, from an empty state; pulumi: your own, against what is deployed."),
    ] = EngineKind.SANDBOX,
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
    form = _form(json, markdown)
    from cli import preview as command

    asked = command.Asked(stack, engine.value, save_plan, sandbox)
    _run(lambda: command.preview(asked, form, Console(highlight=False)))


@app.command()
def preflight(
    stack: Stack,
    compile_cache: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Leave the compiled programs there; also gs://BUCKET/FOLDER."),
    ] = None,
    json: Json = False,
    markdown: Markdown = False,
) -> None:
    """Compile a stack's job for its chips on this machine: does it fit, how fast. Exit status 2: it does not fit."""
    form = _form(json, markdown)
    from cli import preflight as command

    _run(lambda: command.preflight(stack, form, compile_cache, Console(highlight=False)))


@app.command()
def plan(
    preset: Annotated[str, typer.Option(help="A file of workloads/presets, by name.")],
    tokens: Annotated[float, typer.Option(help="To train on, such as 1e12.")],
    days: Annotated[float, typer.Option(help="Time that there is.")],
    by: Annotated[Order, typer.Option(help="What comes first.")] = Order.DOLLARS,
    zone: Annotated[str | None, typer.Option(help="Whose prices hold. Unset: wherever chips are cheapest.")] = None,
    capacity: Annotated[Listed, typer.Option(help="Whose list prices hold.")] = Listed.ON_DEMAND,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw cost against time.")] = None,
    json: Json = False,
    markdown: Markdown = False,
) -> None:
    """The slices that would train a preset in time, from a table of compiled steps. Exit status 2: none would."""
    form = _form(json, markdown)
    from cli import plan as command

    def run() -> int:
        prices = command.chip_prices(zone, capacity.value)
        return command.plan(command.goal(preset, tokens, days), prices, by.value, svg, form, Console(highlight=False))

    _run(run)


def _form(json: bool, markdown: bool) -> Form:
    if json and markdown:
        raise typer.BadParameter("expected one of --json and --markdown, got both; leave one out")
    return Form.JSON if json else Form.MARKDOWN if markdown else Form.TEXT


def _run(command: Callable[[], int]) -> None:
    raise typer.Exit(exit_status(command))


if __name__ == "__main__":
    app()
