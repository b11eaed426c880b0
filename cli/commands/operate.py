"""What became of the jobs of a stack that stands."""

from typing import Annotated

import typer
from rich.console import Console

from cli.commands.options import Engine, Json, On, Sandbox, folder_of, run
from cli.sandbox_folder import SANDBOX

commands = typer.Typer()


@commands.command()
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

    def answer() -> int:
        folder = command.folder(target, stack, folder_of(engine, sandbox))
        return command.report(Asked(folder, output, json), Console(highlight=False))

    run(answer)
