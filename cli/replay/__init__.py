"""`multislice replay`: a trace of jobs on the queues of a stack or a cluster."""

from math import isnan
from pathlib import Path
from typing import Annotated

import typer

from cli.answer import Form
from cli.options import Context, Kubeconfig, TableOutput, complete_stacks
from workloads.terminal import Terminal

replaying = typer.Typer()


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


@replaying.command()
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
    restart_minutes: Annotated[
        float, typer.Option(callback=_number, min=0, help="Minutes that a restart takes.")
    ] = 5.0,
    lead_minutes: _Lead = 30.0,
    maintenance_days: Annotated[
        float | None,
        typer.Option(callback=_number, min=0.1, help="Days between two maintenances of a slice. Default: none."),
    ] = None,
    maintenance_hours: Annotated[
        float, typer.Option(callback=_number, min=0, help="Hours that a maintenance takes.")
    ] = 2.0,
    save_minutes: _SaveMinutes = None,
    starved_hours: Annotated[
        float, typer.Option(callback=_number, min=0.01, help="Wait from which a job is starved.")
    ] = 24.0,
    page: Annotated[Path | None, typer.Option(metavar="FILE", help="File for an HTML page with charts.")] = None,
    save_trace: Annotated[Path | None, typer.Option(metavar="FILE", help="File for the trace as CSV.")] = None,
    search: _Searched = None,
    p90_hours: _P90 = None,
    output: TableOutput = Form.TEXT,
) -> int:
    """Replay a trace of jobs on other quotas, shapes, spares and capacity. Exit status 2: a job starves."""
    from cli.replay.command import Asked, command
    from infra.review.replay.simulation import Conditions

    conditions = Conditions(
        seed=seed,
        failures_per_day=failures_per_day,
        repair_hours=repair_hours,
        spares=spares,
        restart_hours=restart_minutes / 60,
        lead_hours=lead_minutes / 60,
        maintenance_days=maintenance_days,
        maintenance_hours=maintenance_hours,
    )
    save_hours = None if save_minutes is None else save_minutes / 60
    asked = Asked(trace, stack, against, (kubeconfig, context), days, save_hours, starved_hours, conditions)
    return command(asked, page, save_trace, search or [], p90_hours, output, Terminal(highlight=False))
