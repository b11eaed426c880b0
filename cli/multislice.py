"""`multislice`: the commands about a stack, beside those of Pulumi.

Owns names, options and help texts; what a command does lies in the module of its name, which is loaded when it runs.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup
from typer.exceptions import TyperException

from cli.answer import Form
from cli.halt import exit_status
from cli.sandbox_folder import SANDBOX

if TYPE_CHECKING:
    from cli.environments.backend import Backend


class _Commands(TyperGroup):
    """A wrong command line ends with 1, as all that has no answer, and not with typer's 2, which is an answer here."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except TyperException as error:
            error.exit_code = 1
            raise


app = typer.Typer(
    cls=_Commands,
    name="multislice",
    help="What a stack of TPU slices will cost, whether it goes, how fast, and what became of it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

env = typer.Typer(name="env", help="Environments: copies of a stack that end by themselves.", no_args_is_help=True)
app.add_typer(env)

Stack = Annotated[str, typer.Option("--stack", "-s", help="Name of the file stacks/Pulumi.STACK.yaml.")]
Json = Annotated[bool, typer.Option("--json", help="Everything, as one JSON object.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="For a comment on a pull request.")]


class Order(StrEnum):
    """What comes first."""

    DOLLARS = "dollars"
    DAYS = "days"


class Listed(StrEnum):
    """Capacity that has a list price."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"


class Engine(StrEnum):
    """Whose Pulumi, state and cloud."""

    PULUMI = "pulumi"
    SANDBOX = "sandbox"


On = Annotated[
    Engine, typer.Option("--engine", help="Your own Pulumi and its backend, or the sandbox on this machine.")
]
Sandbox = Annotated[Path, typer.Option("--sandbox", metavar="DIR", help="Folder of the sandbox.")]


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


@env.command("create")
def create_environment(
    name: Annotated[str, typer.Argument(help="Of the new stack and its cluster; at most 20 characters.")],
    source: Annotated[str, typer.Option("--from", metavar="STACK", help="Name of the stack to copy.")],
    ttl: Annotated[str, typer.Option(help="Time until it ends, such as 90m, 8h or 2d.")],
    only_file: Annotated[bool, typer.Option("--only-file", help="Write its files and bring nothing up.")] = False,
    engine: On = Engine.PULUMI,
    sandbox: Sandbox = SANDBOX,
) -> None:
    """Make an environment from a stack and bring it up."""
    from cli.environments import create as command
    from cli.environments.files import OURS

    def run() -> int:
        wish = command.Wish(name, source, ttl)
        backend = None if only_file else _backend(engine, sandbox)
        return command.create(wish, backend, OURS, _now(), Console(highlight=False))

    _run(run)


@env.command("destroy")
def destroy_environment(
    name: Annotated[str | None, typer.Argument(help="Of the environment.")] = None,
    expired: Annotated[bool, typer.Option("--expired", help="All whose time is over.")] = False,
    engine: On = Engine.PULUMI,
    sandbox: Sandbox = SANDBOX,
    json: Json = False,
    markdown: Markdown = False,
) -> None:
    """Destroy an environment, running jobs and checkpoints with it. Exit status 1: something is left."""
    form = _form(json, markdown)
    if (name is None) != expired:
        raise typer.BadParameter("expected one of NAME and --expired, got both or neither")
    from cli.environments import destroy as command
    from cli.environments.files import OURS

    _run(lambda: command.destroy(name, _backend(engine, sandbox), OURS, _now(), form, Console(highlight=False)))


@env.command("list")
def list_environments(
    expired: Annotated[bool, typer.Option("--expired", help="Those alone whose time is over.")] = False,
    engine: On = Engine.PULUMI,
    sandbox: Sandbox = SANDBOX,
    json: Json = False,
    markdown: Markdown = False,
) -> None:
    """Environments that the backend knows. Exit status 1: a stack cannot be read; 2: with --expired, there are some."""
    form = _form(json, markdown)
    from cli.environments import listing as command
    from cli.environments.files import OURS

    def run() -> int:
        backend = _backend(engine, sandbox)
        return command.show(backend, OURS, _now(), form, Console(highlight=False), expired=expired)

    _run(run)


def _backend(engine: Engine, sandbox: Path) -> "Backend":
    from cli.environments.backend import PulumiBackend, SandboxBackend
    from cli.environments.files import OURS

    return SandboxBackend(sandbox, OURS) if engine is Engine.SANDBOX else PulumiBackend(OURS)


def _now() -> datetime:
    return datetime.now(UTC)


@app.command()
def drift(
    stack: Stack,
    engine: On = Engine.PULUMI,
    sandbox: Sandbox = SANDBOX,
    json: Json = False,
    markdown: Markdown = False,
) -> None:
    """What others changed in a stack's objects, and what `up` would do about it. Exit status 2: there is drift."""
    form = _form(json, markdown)
    from cli import drift as command

    folder = sandbox if engine is Engine.SANDBOX else None
    _run(lambda: command.drift(stack, folder, form, Console(highlight=False)))


@app.command()
def report(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB",
            help="Storage path of a job, a folder or gs://BUCKET/JOB; the folder of one run; or, with --stack, the name"
            " of a job. Unset: the stack's.",
        ),
    ] = None,
    stack: Annotated[
        str | None, typer.Option("--stack", "-s", help="Whose checkpoint bucket has the job's files.")
    ] = None,
    engine: On = Engine.PULUMI,
    sandbox: Sandbox = SANDBOX,
    output: Annotated[
        str | None, typer.Option(metavar="FILE", help="The page, instead of report.html in the run's folder.")
    ] = None,
    json: Json = False,
) -> None:
    """Where the time and the money of a job's run went, by cause, by fault and by start; and all of it on one page."""
    from cli import report as command
    from workloads.report.command import Asked

    def run() -> int:
        folder = command.folder(target, stack, sandbox if engine is Engine.SANDBOX else None)
        return command.report(Asked(folder, output, json), Console(highlight=False))

    _run(run)


def _form(json: bool, markdown: bool) -> Form:
    if json and markdown:
        raise typer.BadParameter("expected one of --json and --markdown, got both; leave one out")
    return Form.JSON if json else Form.MARKDOWN if markdown else Form.TEXT


def _run(command: Callable[[], int]) -> None:
    raise typer.Exit(exit_status(command))


if __name__ == "__main__":
    app()
