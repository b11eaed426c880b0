"""Command lines about a deployed stack and its jobs.

What a command does is in the module of its name, which is loaded when the command runs.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import Engine, Job, Json, On, Sandbox, Stack, folder_of, run
from workloads.terminal import Terminal

if TYPE_CHECKING:
    from cli.deployed import Deployed

commands = typer.Typer()


@commands.command()
def status(
    stack: Stack,
    job: Job = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Watch until the job has ended.")] = False,
    engine: On = None,
    sandbox: Sandbox = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object; with --watch, one per line after each change.")
    ] = False,
) -> None:
    """Show slices, queues and a job: step, loss, time left, dollars. Exit status 2: with --watch, failed or gone."""
    from cli.status import Watch
    from cli.status import status as command

    def answer() -> int:
        found, console = _deployed(stack, engine, sandbox), Terminal(highlight=False)
        return Watch(found, job, console, json).run() if watch else command(found, job, console, json=json)

    run(answer)


@commands.command("list")
def list_jobs(stack: Stack, engine: On = None, sandbox: Sandbox = None, json: Json = False) -> None:
    """List the jobs in the namespaces of a stack's teams: state, position in the queue, age, step."""
    from cli.status import jobs

    run(lambda: jobs(_deployed(stack, engine, sandbox), Terminal(highlight=False), json=json))


@commands.command()
def logs(
    stack: Stack,
    job: Job = None,
    every: Annotated[bool, typer.Option("--all", help="Show all hosts with their names, not only the leader.")] = False,
    host: Annotated[
        str | None, typer.Option(metavar="HOST", help="Show one host, such as slice-0-1 or head-0-0.")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Follow until the job has ended, across restarts and lost connections."),
    ] = False,
    previous: Annotated[
        bool, typer.Option("--previous", "-p", help="Show logs of the previous start, if they still exist.")
    ] = False,
    tail: Annotated[
        int | None, typer.Option(metavar="LINES", min=0, help="Number of last lines to show per host.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Show lines newer than a duration such as 30s, 10m, 2h or 1d.")
    ] = None,
    engine: On = None,
    sandbox: Sandbox = None,
    json: Annotated[bool, typer.Option("--json", help="Print each line as one JSON object.")] = False,
) -> None:
    """Show logs of a job. Exit status 2: the job has failed."""
    for name, given, other, also in (
        ("--all", every, "--host", host is not None),
        ("--follow", follow, "--previous", previous),
    ):
        if given and also:
            raise typer.BadParameter(f"expected one of {name} and {other}, got both; leave one out")
    from cli.logs import Asked, span
    from cli.logs import logs as command

    def answer() -> int:
        asked = Asked(job, every, host, follow, previous, tail, span(since) if since else None, json)
        folder = folder_of(engine, sandbox)
        return command(_deployed(stack, engine, sandbox), asked, folder, Terminal(highlight=False))

    run(answer)


@commands.command()
def explain(stack: Stack, job: Job = None, engine: On = None, sandbox: Sandbox = None, json: Json = False) -> None:
    """Explain why a job waits, was evicted, restarted or failed, and what to do about it."""
    from cli.explain.explain import command

    run(lambda: command(_deployed(stack, engine, sandbox), job, Terminal(highlight=False), json=json))


@commands.command()
def dashboard(
    stack: Stack,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of 127.0.0.1 to listen on. 0: a free one.")] = 0,
    engine: On = None,
    sandbox: Sandbox = None,
    json: Annotated[bool, typer.Option("--json", help="Print the address as one JSON object.")] = False,
) -> None:
    """Serve live pages of a stack and its jobs to browsers of this machine."""

    def answer() -> int:
        from cli.dashboard import dashboard as command

        return command(_deployed(stack, engine, sandbox), port, Terminal(highlight=False), json=json)

    run(answer)


@commands.command()
def report(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB",
            help="Storage path of a job, a folder or gs://BUCKET/JOB; folder of one run; or, with --stack, name of a"
            " job. Default: the stack's only training job.",
        ),
    ] = None,
    stack: Annotated[
        str | None, typer.Option("--stack", "-s", help="Stack whose checkpoint bucket has the job's files.")
    ] = None,
    engine: On = None,
    sandbox: Sandbox = None,
    output: Annotated[
        str | None, typer.Option(metavar="FILE", help="File for the page. Default: report.html in the run's folder.")
    ] = None,
    json: Json = False,
) -> None:
    """Report where the time and the money of a job's run went, by cause, error and start, and write a page of it."""
    from cli import report as command
    from workloads.report.command import Asked

    def answer() -> int:
        folder = command.folder(target, stack, folder_of(engine, sandbox))
        return command.report(Asked(folder, output, json), Terminal(highlight=False))

    run(answer)


@commands.command()
def cancel(
    stack: Stack,
    job: Job = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    engine: On = None,
    sandbox: Sandbox = None,
    json: Json = False,
) -> None:
    """End a job and keep its checkpoints. Exit status 2: it has ended already."""

    def answer() -> int:
        from cli.cancel import cancel as command

        return command(_deployed(stack, engine, sandbox), job, Terminal(highlight=False), yes=yes, as_json=json)

    run(answer)


@commands.command()
def profile(
    stack: Stack,
    job: Job = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for the profile. Default: ./profile-JOB.", show_default=False),
    ] = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the steps.")] = 600.0,
    engine: On = None,
    sandbox: Sandbox = None,
    json: Json = False,
) -> None:
    """Profile five steps of a running job on all its hosts and download them. Exit status 2: it does not train."""

    def answer() -> int:
        from cli.profile import profile as command

        return command(_deployed(stack, engine, sandbox), job, output, wait, Terminal(highlight=False), as_json=json)

    run(answer)


@commands.command()
def doctor(stack: Stack, engine: On = None, sandbox: Sandbox = None, json: Json = False) -> None:
    """Check what keeps a stack from working, and say what repairs it. Exit status 2: a check failed."""

    def answer() -> int:
        from cli.doctor.doctor import doctor as command

        return command(stack, folder_of(engine, sandbox), Terminal(highlight=False), as_json=json)

    run(answer)


def _deployed(stack: str, engine: Engine | None, sandbox: Path | None) -> "Deployed":
    from cli.deployed import deployed

    return deployed(stack, folder_of(engine, sandbox))
