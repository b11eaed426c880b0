"""The command that needs a cluster, but no stack: `multislice rehearse`."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Context, Kubeconfig, Namespace, Output
from workloads.terminal import Terminal

any_cluster = typer.Typer()


@any_cluster.command()
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
