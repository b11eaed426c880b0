"""The commands that create, deploy and destroy a stack: `multislice init`, `up` and `down`."""

from typing import Annotated, Literal

import typer

from cli import stack_file
from cli.answer import Halt
from cli.options import On, Sandbox, Stack, Yes, folder_of
from workloads.terminal import Terminal

lifecycle = typer.Typer()


@lifecycle.command()
def init(
    name: Annotated[str, typer.Argument(help="Name of the stack.")] = "dev",
    project: Annotated[str | None, typer.Option(help="Google Cloud project.")] = None,
    zone: Annotated[str | None, typer.Option(help="Zone of the slices, such as us-east5-b.")] = None,
    region: Annotated[
        str | None, typer.Option(help="Region of the cluster. Default: that of the zone.", show_default=False)
    ] = None,
    generation: Annotated[str | None, typer.Option(help="Generation of the chips, such as v6e.")] = None,
    topology: Annotated[str | None, typer.Option(help="Topology of a slice, such as 4x4, or v6e-16.")] = None,
    capacity: Annotated[Literal["on-demand", "spot"], typer.Option(help="Source of the chips.")] = "spot",
) -> int:
    """Create the file of a stack, and a project around it if there is none. Asks for missing values on a terminal."""
    from cli.init import InitOptions
    from cli.init import init as command

    options = InitOptions(project, generation, topology, zone, region, capacity)
    return command(name, options, Terminal(highlight=False))


@lifecycle.command()
def up(
    stack: Stack,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="First read what exists, so that what was deleted is created again.")
    ] = False,
    replace: Annotated[
        list[str] | None,
        typer.Option(metavar="URN", help="Resource to delete and create again, such as '**::job-NAME'. Repeatable."),
    ] = None,
    yes: Yes = False,
    engine: On = None,
    sandbox: Sandbox = None,
) -> int:
    """Deploy a stack; in the sandbox, also follow its job. Exit status 1: that failed; 2: the review refuses it."""
    from infra.cluster.stacks import Renewal

    folder = folder_of(stack, engine, sandbox)
    renewal = Renewal(refresh, tuple(replace or ()))
    if folder is None:
        from cli.deploy import up as deploy
        from cli.stack_file import files_of_project

        return deploy(stack, files_of_project(), Terminal(highlight=False), renewal, yes=yes)
    from cli.up import up as command

    return command(stack_file.find(stack), folder, Terminal(highlight=False), renewal)


@lifecycle.command()
def down(
    stack: Stack,
    stop_jobs: Annotated[
        bool, typer.Option("--stop-jobs", help="Stop running jobs, which save first. Only in the sandbox.")
    ] = False,
    foreign_objects: Annotated[
        bool,
        typer.Option(
            "--foreign-objects",
            help="Also delete queues and namespaces that the stack did not create. Only in the sandbox.",
        ),
    ] = False,
    delete_checkpoints: Annotated[
        bool, typer.Option("--delete-checkpoints", help="Delete the whole folder of the sandbox.")
    ] = False,
    yes: Yes = False,
    engine: On = None,
    sandbox: Sandbox = None,
) -> int:
    """Destroy a stack, keep its checkpoints and say what remains."""
    folder = folder_of(stack, engine, sandbox)
    if folder is None:
        if stop_jobs or foreign_objects or delete_checkpoints:
            raise Halt(
                "--stop-jobs, --foreign-objects and --delete-checkpoints are for the sandbox; in Google Cloud, cancel"
                " jobs with `multislice cancel`, and delete what remains with the commands that this one prints"
            )
        from cli.deploy import down as destroy
        from cli.stack_file import files_of_project

        return destroy(stack, files_of_project(), Terminal(highlight=False), yes=yes)
    from cli.down import Consent
    from cli.down import down as command

    consent = Consent(delete_checkpoints, yes, stop_jobs, foreign_objects)
    return command(stack_file.find(stack), folder, consent, Terminal(highlight=False))
