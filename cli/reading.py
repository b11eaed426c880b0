"""The commands that read jobs, queues and clusters, and the replay of a trace.

They work on a stack, and with a kubeconfig on any cluster with JobSet or Kueue.
"""

from math import isnan
from pathlib import Path
from typing import Annotated

import typer

from cli.answer import Form
from cli.options import (
    Context,
    Job,
    Kubeconfig,
    Namespace,
    On,
    Output,
    ReadingCommand,
    Sandbox,
    Stack,
    TableOutput,
    chosen_stack,
    complete_stacks,
    folder_of,
    kubectl,
    observed_of,
)
from workloads.terminal import Terminal

reading = typer.Typer()


@reading.command(cls=ReadingCommand)
def status(
    stack: Stack,
    job: Job = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Watch until the job has ended.")] = False,
    engine: On = None,
    sandbox: Sandbox = None,
    output: Output = "text",
) -> int:
    """Show slices, queues and a job: step, loss, time left, dollars. Exit status 2: with --watch, failed or missing."""
    from cli.status import Watch
    from cli.status import status as command

    found, console = observed_of(stack, engine, sandbox), Terminal(highlight=False)
    in_json = output == "json"
    return Watch(found, job, console, in_json).run() if watch else command(found, job, console, json=in_json)


@reading.command("list", cls=ReadingCommand)
def list_jobs(stack: Stack, engine: On = None, sandbox: Sandbox = None, output: Output = "text") -> int:
    """List the jobs in the namespaces of a stack's teams: state, position in the queue, age, step."""
    from cli.status import jobs

    return jobs(observed_of(stack, engine, sandbox), Terminal(highlight=False), json=output == "json")


@reading.command(cls=ReadingCommand)
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
        bool, typer.Option("--previous", "-p", help="Show logs of the attempt before the newest, if they still exist.")
    ] = False,
    tail: Annotated[
        int | None, typer.Option(metavar="LINES", min=0, help="Number of last lines to show per host.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Show lines newer than a duration such as 30s, 10m, 2h or 1d.")
    ] = None,
    engine: On = None,
    sandbox: Sandbox = None,
    output: Output = "text",
) -> int:
    """Show logs of a job. Exit status 2: the job has failed."""
    for name, given, other, also in (
        ("--all", every, "--host", host is not None),
        ("--follow", follow, "--previous", previous),
    ):
        if given and also:
            raise typer.BadParameter(f"expected only one of {name} and {other}, got both")
    from cli.logs import Selection, span
    from cli.logs import logs as command

    selection = Selection(job, every, host, follow, previous, tail, span(since) if since else None, output == "json")
    folder = folder_of(chosen_stack(stack, engine, sandbox), engine, sandbox)
    return command(observed_of(stack, engine, sandbox), selection, folder, Terminal(highlight=False))


@reading.command(cls=ReadingCommand)
def explain(stack: Stack, job: Job = None, engine: On = None, sandbox: Sandbox = None, output: Output = "text") -> int:
    """Explain why a job waits, was evicted, restarted or failed, and what to do about it."""
    from cli.explain.explain import command

    return command(observed_of(stack, engine, sandbox), job, Terminal(highlight=False), json=output == "json")


@reading.command(cls=ReadingCommand)
def report(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB",
            help="Storage path of a job (a folder or gs://BUCKET/JOB), folder of one run, or name of a job of the"
            " stack or the namespace. Default: the only job.",
        ),
    ] = None,
    *,
    stack: Stack,
    engine: On = None,
    sandbox: Sandbox = None,
    page: Annotated[
        str | None, typer.Option(metavar="FILE", help="File for the page. Default: report.html in the run's folder.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Write the page every few seconds until the job has ended.")
    ] = False,
    output: Output = "text",
) -> int:
    """Report the time and money spent in a run of a job, by cause, error and attempt, and write an HTML page."""
    from cli import report as command
    from workloads.report.command import Asked

    def asked(folder: str) -> Asked:
        return Asked(folder, page, output == "json", watch)

    console = Terminal(highlight=False)
    if target and command.is_folder(target, stack, by_kubeconfig=any(kubectl().values())):
        return command.report(asked(target), console)
    if named := chosen_stack(stack, engine, sandbox):
        return command.report(asked(command.folder(target, named, folder_of(named, engine, sandbox))), console)
    from cli.report_of_cluster import report as of_cluster

    return of_cluster(observed_of(None, engine, sandbox), target, asked, console)


@reading.command(cls=ReadingCommand)
def doctor(stack: Stack, engine: On = None, sandbox: Sandbox = None, output: Output = "text") -> int:
    """Check a stack or a cluster for problems and show how to repair them. Exit status 2: a check failed."""
    from cli.deployed import Kubectl, foreign_by_kubeconfig
    from cli.doctor.doctor import doctor as command
    from cli.doctor.doctor import doctor_of_cluster

    console, in_json = Terminal(highlight=False), output == "json"
    if named := chosen_stack(stack, engine, sandbox):
        return command(named, folder_of(named, engine, sandbox), console, as_json=in_json)
    return doctor_of_cluster(foreign_by_kubeconfig(Kubectl(**kubectl())), console, as_json=in_json)


@reading.command()
def rehearse(
    manifest: Annotated[
        Path,
        typer.Argument(metavar="JOB.yaml", help="Manifests of JobSets, as for kubectl create -f. -: standard input."),
    ],
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
    output: Output = "text",
) -> int:
    """Say whether the Kueue of any cluster would admit a JobSet. Exit status 2: it would wait, or it is not known."""
    from cli.rehearse.rehearse import command

    chosen = (kubeconfig, context, namespace)
    return command(manifest, chosen, Terminal(highlight=False), json=output == "json")


def _number(value: float | None) -> float | None:
    """Refuse `nan`, which no bound of an option excludes."""
    if value is not None and isnan(value):
        raise typer.BadParameter("expected a number, got nan")
    return value


_Trace = Annotated[
    Path | None,
    typer.Argument(
        metavar="TRACE",
        help="Jobs as CSV, as JSON of `kubectl get workloads,events,resourceflavors -A -o json`, or as YAML of what"
        " to draw them from. Default: the Workloads of the cluster.",
    ),
]
_StackOrFile = Annotated[
    str | None,
    typer.Option(
        "--stack",
        "-s",
        metavar="STACK",
        help="Stack, or path of a stack file. Default: the stack that Pulumi has selected.",
        autocompletion=complete_stacks,
    ),
]
_Against = Annotated[
    str | None,
    typer.Option(metavar="STACK", help="Another stack, or path of its file, to compare with: the column `after`."),
]
_SaveMinutes = Annotated[
    float | None,
    typer.Option(
        callback=_number, min=0.01, help="Minutes between saves of jobs that a cluster describes. Default: no saves."
    ),
]
_Searched = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATH=VALUES",
        help="Search the best values, such as teams.a.quota.x=0..64/16, slices.x.count=2,3 or spares=0..2.",
    ),
]
_Days = Annotated[
    float | None,
    typer.Option(callback=_number, min=0.01, max=366, help="Length of the trace. Default: to its last job."),
]
_P90 = Annotated[
    float | None, typer.Option(callback=_number, min=0, help="With --search: highest p90 of waits. Default: any.")
]
_Lead = Annotated[
    float, typer.Option(callback=_number, min=0, help="Minutes until chips of flex-start or queued capacity come.")
]
_Failures = Annotated[float, typer.Option(callback=_number, min=0, max=1000, help="Failures of a slice per day.")]
_Repair = Annotated[float, typer.Option(callback=_number, min=0, help="Hours until a failed slice is back.")]
_Restart = Annotated[float, typer.Option(callback=_number, min=0, help="Minutes that a restart takes.")]
_MaintenanceDays = Annotated[
    float | None,
    typer.Option(callback=_number, min=0.1, help="Days between two maintenances of a slice. Default: none."),
]
_MaintenanceHours = Annotated[float, typer.Option(callback=_number, min=0, help="Hours that a maintenance takes.")]
_Starved = Annotated[float, typer.Option(callback=_number, min=0.01, help="Wait from which a job is starved.")]


@reading.command()
def replay(
    trace: _Trace = None,
    stack: _StackOrFile = None,
    against: _Against = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    days: _Days = None,
    seed: Annotated[int, typer.Option(help="Seed of what is drawn: jobs and failures.")] = 1,
    failures_per_day: _Failures = 0.0,
    repair_hours: _Repair = 2.0,
    spares: Annotated[int, typer.Option(min=0, help="Spare slices of each group, on which no quota counts.")] = 0,
    restart_minutes: _Restart = 5.0,
    lead_minutes: _Lead = 30.0,
    maintenance_days: _MaintenanceDays = None,
    maintenance_hours: _MaintenanceHours = 2.0,
    save_minutes: _SaveMinutes = None,
    starved_hours: _Starved = 24.0,
    page: Annotated[Path | None, typer.Option(metavar="FILE", help="File for an HTML page with charts.")] = None,
    save_trace: Annotated[Path | None, typer.Option(metavar="FILE", help="File for the trace as CSV.")] = None,
    search: _Searched = None,
    p90_hours: _P90 = None,
    output: TableOutput = Form.TEXT,
) -> int:
    """Replay a trace of jobs on other quotas, shapes, spares and capacity. Exit status 2: a job starves."""
    from cli.replay import Asked, Conditions, command

    asked = Asked(
        trace=trace,
        stacks=(stack, against),
        cluster=(kubeconfig, context),
        days=days,
        save_hours=None if save_minutes is None else save_minutes / 60,
        starved_hours=starved_hours,
        conditions=Conditions(
            seed=seed,
            failures_per_day=failures_per_day,
            repair_hours=repair_hours,
            spares=spares,
            restart_hours=restart_minutes / 60,
            lead_hours=lead_minutes / 60,
            maintenance_days=maintenance_days,
            maintenance_hours=maintenance_hours,
        ),
        page=page,
        save_trace=save_trace,
        bounds=search or (),
        p90_hours=p90_hours,
    )
    return command(asked, output, Terminal(highlight=False))
