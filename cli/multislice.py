"""`multislice`: the commands about a stack, in addition to those of Pulumi."""

import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from cli import job_commands, plan_commands
from sandbox.daemon import CHECKOUT


class _Commands(TyperGroup):
    """A wrong command line ends with 1, as every error does, and not with typer's 2, which is an answer here."""

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
    help="Price, check, watch and control a stack of TPU slices.",
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


app.add_typer(plan_commands.commands)
app.add_typer(plan_commands.environments)
app.add_typer(job_commands.commands)

if __name__ == "__main__":
    app(prog_name="multislice")
