"""What stands, what its jobs do and what became of them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.commands.options import Engine, Job, Json, On, Sandbox, Stack, folder_of, run
from workloads.terminal import Terminal

if TYPE_CHECKING:
    from cli.deployed import Deployed

commands = typer.Typer()


@commands.command()
def status(
    stack: Stack,
    job: Job = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Until the job has ended.")] = False,
    engine: On = None,
    sandbox: Sandbox = None,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Everything, as one JSON object; with --watch one per line, whenever more than the time has changed.",
        ),
    ] = False,
) -> None:
    """Slices, queues and a job: step, loss, time left, dollars so far. Exit status 2: with --watch, failed or gone."""
    from cli.status import command

    def answer() -> int:
        found, console = _deployed(stack, engine, sandbox), Terminal(highlight=False)
        if watch:
            return command.Watch(found, job, console, json).run()
        return command.status(found, job, console, json=json)

    run(answer)


@commands.command("list")
def list_jobs(stack: Stack, engine: On = None, sandbox: Sandbox = None, json: Json = False) -> None:
    """The jobs in the namespaces of a stack's teams: state, place in the queue, age, step."""
    from cli.status import command

    run(lambda: command.jobs(_deployed(stack, engine, sandbox), Terminal(highlight=False), json=json))


@commands.command()
def logs(
    stack: Stack,
    job: Job = None,
    every: Annotated[
        bool, typer.Option("--all", help="All hosts, with their names. Unset: the leader's alone.")
    ] = False,
    host: Annotated[str | None, typer.Option(metavar="HOST", help="One host, such as slice-0-1 or head-0-0.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Until the job has ended, over restarts and broken connections.")
    ] = False,
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="Of the start before, as long as anybody has them.")
    ] = False,
    tail: Annotated[int | None, typer.Option(metavar="LINES", min=0, help="The last so many lines of a host.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="The last 30s, 10m, 2h or 1d.")] = None,
    engine: On = None,
    sandbox: Sandbox = None,
    json: Annotated[bool, typer.Option("--json", help="Each line as one JSON object.")] = False,
) -> None:
    """What the hosts of a job print. Exit status 2: the job has failed."""
    for name, given, other, also in (
        ("--all", every, "--host", host is not None),
        ("--follow", follow, "--previous", previous),
    ):
        if given and also:
            raise typer.BadParameter(f"expected one of {name} and {other}, got both; leave one out")
    from cli.logs import command

    def answer() -> int:
        span = command.span(since) if since else None
        asked = command.Asked(job, every, host, follow, previous, tail, span, json)
        folder = folder_of(engine, sandbox)
        return command.logs(_deployed(stack, engine, sandbox), asked, folder, Terminal(highlight=False))

    run(answer)


@commands.command()
def explain(stack: Stack, job: Job = None, engine: On = None, sandbox: Sandbox = None, json: Json = False) -> None:
    """Why a job waits, was put back into its queue, restarted or failed; and what to do about it."""
    from cli.explain import command

    run(lambda: command.command(_deployed(stack, engine, sandbox), job, Terminal(highlight=False), json=json))


@commands.command()
def dashboard(
    stack: Stack,
    port: Annotated[int, typer.Option(min=0, max=65535, help="To listen on, at 127.0.0.1. 0: a free one.")] = 0,
    engine: On = None,
    sandbox: Sandbox = None,
    json: Annotated[bool, typer.Option("--json", help="Where it is served, as one JSON object.")] = False,
) -> None:
    """Serve live pages of a stack and its jobs to browsers of this machine."""

    def answer() -> int:
        from cli.dashboard.server import dashboard as command

        return command(_deployed(stack, engine, sandbox), port, Terminal(highlight=False), json=json)

    run(answer)


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
    engine: On = None,
    sandbox: Sandbox = None,
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
        return command.report(Asked(folder, output, json), Terminal(highlight=False))

    run(answer)


def _deployed(stack: str, engine: Engine | None, sandbox: Path | None) -> "Deployed":
    from cli.deployed import deployed

    return deployed(stack, folder_of(engine, sandbox))
