"""`multislice`: the commands about a stack, beside those of Pulumi.

Owns their order. Names, options and help texts lie in `cli.commands`; what a command does lies in the module of its
name, which is loaded when it runs.
"""

from typing import Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from cli.commands import control, environments, operate, plans


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
app.add_typer(plans.commands)
app.add_typer(environments.commands)
app.add_typer(operate.commands)
app.add_typer(control.commands)

if __name__ == "__main__":
    app(prog_name="multislice")
