"""What is done to a job of a stack that stands."""

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
    """End a job; its checkpoints stay. Exit status 2: it has ended already."""

    def answer() -> int:
        from cli.control.cancel import cancel as command
        from cli.deployed import deployed

        found = deployed(stack, folder_of(engine, sandbox))
        return command(found, job, Terminal(highlight=False), yes=yes, as_json=json)

    run(answer)


@commands.command()
def retry(stack: Stack, job: Job = None, engine: On = None, sandbox: Sandbox = None, json: Json = False) -> None:
    """Submit a failed job once more, from its last checkpoint on. Exit status 2: it has not failed."""

    def answer() -> int:
        from cli.control.retry import retry as command
        from cli.deployed import deployed

        return command(deployed(stack, folder_of(engine, sandbox)), job, Terminal(highlight=False), as_json=json)

    run(answer)


@commands.command()
def suspend(stack: Stack, job: Job = None, engine: On = None, sandbox: Sandbox = None, json: Json = False) -> None:
    """Take a job out of its queue: it saves, and frees its chips. Exit status 2: it has ended already."""

    def answer() -> int:
        from cli.control.suspension import suspend as command
        from cli.deployed import deployed

        return command(deployed(stack, folder_of(engine, sandbox)), job, Terminal(highlight=False), as_json=json)

    run(answer)


@commands.command()
def resume(stack: Stack, job: Job = None, engine: On = None, sandbox: Sandbox = None, json: Json = False) -> None:
    """Put a suspended job back into its queue. Exit status 2: it has ended already."""

    def answer() -> int:
        from cli.control.suspension import resume as command
        from cli.deployed import deployed

        return command(deployed(stack, folder_of(engine, sandbox)), job, Terminal(highlight=False), as_json=json)

    run(answer)


@commands.command()
def priority(
    stack: Stack,
    name: Annotated[str, typer.Argument(metavar="PRIORITY", help="low, normal, high, or another of the cluster.")],
    job: Job = None,
    engine: On = None,
    sandbox: Sandbox = None,
    json: Json = False,
) -> None:
    """Give a job another priority while it waits or runs. Exit status 2: there is none such, or the job has ended."""

    def answer() -> int:
        from cli.control.priority import priority as command
        from cli.deployed import deployed

        return command(deployed(stack, folder_of(engine, sandbox)), job, name, Terminal(highlight=False), as_json=json)

    run(answer)


@commands.command()
def shell(
    stack: Stack,
    job: Job = None,
    host: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="One host, such as slice-0-1. Unset: the leader, by Pathways head-0-0."),
    ] = None,
    command: Annotated[
        str | None, typer.Option("--command", "-c", help="Run this by a shell, instead of one to type into.")
    ] = None,
    engine: On = None,
    sandbox: Sandbox = None,
    json: Json = False,
) -> None:
    """A shell on a host of a running job; its exit status is the command's. Exit status 2: no such host runs."""

    def answer() -> int:
        from cli.deployed import deployed
        from cli.shell import shell as run_shell

        return run_shell(deployed(stack, folder_of(engine, sandbox)), job, host, command, as_json=json)

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
    """Record five steps of a running job on all its hosts, and bring them here. Exit status 2: it does not train."""

    def answer() -> int:
        from cli.deployed import deployed
        from cli.profile.command import profile as command

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
