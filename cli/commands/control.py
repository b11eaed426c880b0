"""Commands that act on a job of a deployed stack, and `doctor`."""

from pathlib import Path
from typing import Annotated

import typer

from cli.commands.options import Job, Json, On, Sandbox, Stack, folder_of, run
from workloads.terminal import Terminal

commands = typer.Typer()

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


@commands.command()
def cancel(
    stack: Stack,
    job: Job = None,
    yes: Yes = False,
    engine: On = None,
    sandbox: Sandbox = None,
    json: Json = False,
) -> None:
    """End a job and keep its checkpoints. Exit status 2: it has ended already."""

    def answer() -> int:
        from cli.cancel import cancel as command
        from cli.deployed import deployed

        found = deployed(stack, folder_of(engine, sandbox))
        return command(found, job, Terminal(highlight=False), yes=yes, as_json=json)

    run(answer)


@commands.command()
def profile(
    stack: Stack,
    job: Job = None,
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for it, instead of ./profile-JOB.", show_default=False)
    ] = None,
    wait: Annotated[float, typer.Option(help="Seconds that the steps may take.")] = 600.0,
    engine: On = None,
    sandbox: Sandbox = None,
    json: Json = False,
) -> None:
    """Profile five steps of a running job on all its hosts and download them. Exit status 2: it does not train."""

    def answer() -> int:
        from cli.deployed import deployed
        from cli.profile import profile as command

        found = deployed(stack, folder_of(engine, sandbox))
        return command(found, job, output, wait, Terminal(highlight=False), as_json=json)

    run(answer)


@commands.command()
def doctor(stack: Stack, engine: On = None, sandbox: Sandbox = None, json: Json = False) -> None:
    """What is in the way of a stack, in eight groups, and what repairs it. Exit status 2: something is."""

    def answer() -> int:
        from cli.doctor.command import doctor as command

        return command(stack, folder_of(engine, sandbox), Terminal(highlight=False), as_json=json)

    run(answer)
