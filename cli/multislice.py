"""`multislice`: the commands about a stack, beside those of Pulumi.

Owns their order. Names, options and help texts lie in `cli.commands`; what a command does lies in the module of its
name, which is loaded when it runs.
"""

import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from cli.commands import control, environments, operate, plans
from sandbox.daemon import CHECKOUT


class _Commands(TyperGroup):
    """A wrong command line ends with 1, as all that has no answer, and not with typer's 2, which is an answer here."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _without_answer():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with _without_answer():
            return super().invoke(ctx)


@contextmanager
def _without_answer() -> Generator[None]:
    try:
        yield
    except TyperException as error:
        error.exit_code = 1
        raise


def _version(asked: bool) -> None:
    if asked:
        project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
        typer.echo(" ".join(("multislice", project["version"])))
        raise typer.Exit


app = typer.Typer(
    cls=_Commands,
    name="multislice",
    help="What a stack of TPU slices will cost, whether it goes, how fast, and what became of it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of the command without a subcommand."""


app.add_typer(plans.commands)
app.add_typer(environments.commands)
app.add_typer(operate.commands)
app.add_typer(control.commands)

if __name__ == "__main__":
    app(prog_name="multislice")
