"""The command line of `multislice`, which adds commands about a stack to those of Pulumi.

Each command is implemented in the module of the same name, which is imported when the command runs.
"""

import re
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

import typer

from cli.answer import Form
from cli.lifecycle import lifecycle
from cli.options import (
    ClusterCommand,
    Commands,
    Engine,
    Job,
    On,
    Output,
    Sandbox,
    Stack,
    TableOutput,
    Verbose,
    Yes,
    amount,
    deployed_of,
    folder_of,
    kubectl,
)
from cli.reading import reading
from infra.stack.command_lines import DISTRIBUTION
from workloads.terminal import Terminal


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(" ".join(("multislice", metadata.version(DISTRIBUTION))))
        raise typer.Exit


app = typer.Typer(
    cls=Commands,
    name="multislice",
    help="Create, price, deploy, watch and control a stack of TPU slices.",
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


for commands in (lifecycle, reading):
    app.add_typer(commands)


@app.command()
def review(
    stack: Stack,
    outputs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Output of `pulumi stack output --json`, to compare with.")
    ] = None,
    workloads: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Output of `kubectl get workloads -A -o json`.")
    ] = None,
    verbose: Verbose = False,
    output: TableOutput = Form.TEXT,
) -> int:
    """Review price, memory, speed and queue of a stack. Exit status 2: a job cannot run, or `up` would fail."""
    from cli import review as command

    return command.review(stack, outputs, workloads, output, Terminal(highlight=False), verbose=verbose)


@app.command()
def preview(
    stack: Stack,
    engine: Annotated[
        Engine,
        typer.Option(help="sandbox: offline, from an empty state. pulumi: your own, against the deployed state."),
    ] = "sandbox",
    save_plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to save the plan to, for `pulumi up --plan FILE`.")
    ] = None,
    sandbox: Annotated[
        Path | None,
        typer.Option(
            metavar="[DIR]",
            help="Compare with the state of the sandbox in this folder. Without a folder: .sandbox in the project.",
        ),
    ] = None,
    verbose: Verbose = False,
    output: TableOutput = Form.TEXT,
) -> int:
    """Preview changes, policy, price and queue of a stack. Exit status 2: a rule forbids it, or a job cannot run."""
    from cli import preview as command

    request = command.PreviewRequest(stack, engine, save_plan, sandbox and folder_of(None, engine, sandbox), verbose)
    return command.preview(request, output, Terminal(highlight=False))


@app.command()
def preflight(
    stack: Stack,
    compile_cache: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Folder for compiled programs, or gs://BUCKET/FOLDER.")
    ] = None,
    compare_compile: Annotated[
        bool, typer.Option("--compare-compile", help="Compile with each value of `compile` and compare the results.")
    ] = False,
    output: TableOutput = Form.TEXT,
) -> int:
    """Compile a stack's training jobs to see if they fit and how fast they are. Exit status 2: one does not fit."""
    from cli import preflight as command

    return command.preflight(stack, output, compile_cache, Terminal(highlight=False), compare_compile)


@app.command()
def plan(
    stack: Stack,
    tokens: Annotated[
        float | None,
        typer.Option(
            parser=amount, metavar="NUMBER", help="Tokens to train on, such as 800B. Default: those of the job."
        ),
    ] = None,
    days: Annotated[float | None, typer.Option(help="Deadline, in days.")] = None,
    output: TableOutput = Form.TEXT,
) -> int:
    """Show how long training jobs take, their cost and their last day. Exit status 2: one does not fit or is late."""
    from cli import plan as command

    return command.plan(stack, tokens, days, output, Terminal(highlight=False))


@app.command()
def drift(stack: Stack, engine: On = None, sandbox: Sandbox = None, output: TableOutput = Form.TEXT) -> int:
    """Show changes made outside of Pulumi, and what `up` would do about them. Exit status 2: drift was found."""
    from cli import drift as command

    return command.drift(stack, folder_of(stack, engine, sandbox), output, Terminal(highlight=False))


_Name = Annotated[str | None, typer.Option(metavar="NAME", help="Name of the job that runs a command.")]
_Slices = Annotated[str | None, typer.Option(metavar="GROUP:COUNT", help="Slices of the job that runs a command.")]
_Image = Annotated[str | None, typer.Option(metavar="REF", help="Image by digest. Default: the trainer's image.")]
_Priority = Annotated[Literal["low", "normal", "high"] | None, typer.Option(help="Priority within the team.")]
_MaxRestarts = Annotated[int | None, typer.Option(metavar="NUMBER", help="Maximum number of restarts. Default: 3.")]
_MaxHours = Annotated[float | None, typer.Option(metavar="HOURS", help="Hours that the job may hold chips.")]
_RenderedWords = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="JOB",
        help="Name of a job in the stack file, a file JOB.yaml, or the command of a program after --name NAME ... --.",
    ),
]
_UsdPerChipHour = Annotated[float | None, typer.Option(metavar="USD", help="Price of a chip-hour. Default: unknown.")]


@app.command(cls=ClusterCommand)
def submit(
    stack: Stack,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="JOB.yaml", help="File of one job, or the command of a program after --name NAME ... --."
        ),
    ] = None,
    name: _Name = None,
    slices: _Slices = None,
    image: _Image = None,
    priority: _Priority = None,
    max_restarts: _MaxRestarts = None,
    max_hours: _MaxHours = None,
    yes: Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only review the job.")] = False,
    verbose: Verbose = False,
    engine: On = None,
    sandbox: Sandbox = None,
    output: Output = "text",
) -> int:
    """Submit a job to a team's queue after a review. Exit status 2: it cannot run, or the cluster refuses it."""
    from cli import submit as command

    flags = command.Flags(name, slices, image, priority, max_restarts, max_hours)
    request = command.read_request(words or [], flags)
    found, console, in_json = deployed_of(stack, engine, sandbox), Terminal(highlight=False), output == "json"
    return command.submit(found, request, console, yes=yes, dry_run=dry_run, json=in_json, verbose=verbose)


@app.command(cls=ClusterCommand)
def render(
    stack: Stack,
    words: _RenderedWords = None,
    name: _Name = None,
    slices: _Slices = None,
    image: _Image = None,
    priority: _Priority = None,
    max_restarts: _MaxRestarts = None,
    max_hours: _MaxHours = None,
    job_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File of one job, for a cluster that the following options describe."),
    ] = None,
    queue: Annotated[str | None, typer.Option(metavar="NAME", help="LocalQueue in the namespace.")] = None,
    generation: Annotated[str | None, typer.Option(help="Generation of the chips, such as v6e.")] = None,
    topology: Annotated[str | None, typer.Option(help="Topology of a slice, such as 4x4, or v6e-16.")] = None,
    capacity: Annotated[
        str | None, typer.Option(help="Source of the chips, as in a stack file: on-demand, spot or a mapping.")
    ] = None,
    bucket: Annotated[str | None, typer.Option(metavar="NAME", help="Bucket for the files of the job.")] = None,
    usd_per_chip_hour: _UsdPerChipHour = None,
    service_account: Annotated[
        str | None, typer.Option(metavar="NAME", help="Service account of the pods. Default: trainer.")
    ] = None,
    restarts_slices: Annotated[
        bool, typer.Option("--restarts-slices", help="Restart single slices: JobSet has the feature gate RestartJob.")
    ] = False,
    engine: On = None,
    sandbox: Sandbox = None,
) -> int:
    """Print a job as YAML, for kubectl: the objects of a job in the stack file, or the JobSet of a submitted job."""
    from cli import submit as command
    from cli import undeployed

    flags, given = command.Flags(name, slices, image, priority, max_restarts, max_hours), words or []
    described = {"queue": queue, "generation": generation, "topology": topology, "capacity": capacity}
    described |= {"bucket": bucket, "service_account": service_account, "usd_per_chip_hour": usd_per_chip_hour}
    if job_file or restarts_slices or any(value is not None for value in described.values()):
        described |= {**kubectl(), "image": image, "restarts_slices": restarts_slices}
        return undeployed.render_described(job_file, described, [*given, *replace(flags, image=None).given])
    if stack and not (engine or sandbox or flags.given) and len(given) == 1 and re.fullmatch(r"[^./]+", given[0]):
        return undeployed.render_declared(stack, given[0])
    request = command.read_request(given, flags)
    return command.render(deployed_of(stack, engine, sandbox), request)


@app.command(cls=ClusterCommand)
def cancel(
    stack: Stack,
    job: Job = None,
    yes: Yes = False,
    engine: On = None,
    sandbox: Sandbox = None,
    output: Output = "text",
) -> int:
    """Cancel a job and keep its checkpoints. Exit status 2: the job had already ended."""
    from cli.cancel import cancel as command

    found = deployed_of(stack, engine, sandbox)
    return command(found, job, Terminal(highlight=False), yes=yes, as_json=output == "json")


@app.command("enforce-budget")
def enforce_budget(stack: Stack, engine: On = None, sandbox: Sandbox = None, output: TableOutput = Form.TEXT) -> int:
    """Stop the queues of a stack whose budget.usd_total is used up. Exit status 2: it is used up."""
    from cli.enforce_budget import enforce_budget as command

    return command(deployed_of(stack, engine, sandbox), output, Terminal(highlight=False))


@app.command(cls=ClusterCommand)
def profile(
    stack: Stack,
    job: Job = None,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for the profile. Default: ./profile-JOB.", show_default=False),
    ] = None,
    wait: Annotated[float, typer.Option(help="Seconds to wait for the steps.")] = 600.0,
    engine: On = None,
    sandbox: Sandbox = None,
    output: Output = "text",
) -> int:
    """Profile five steps of a running job on all its hosts. Exit status 2: the job is not training."""
    from cli.profile import profile as command

    in_json = output == "json"
    return command(deployed_of(stack, engine, sandbox), job, folder, wait, Terminal(highlight=False), as_json=in_json)


def main() -> None:
    """Run the command line."""
    app(prog_name="multislice")


if __name__ == "__main__":
    main()
