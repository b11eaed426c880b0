"""`python -m cli.ci` has the commands that the workflows in `.github` need in addition to `multislice`."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from cli import stack_file
from cli.answer import exit_status
from cli.ci import licences as of_image
from cli.ci import plugins as of_pulumi
from cli.ci.release import release_notes as notes
from sandbox.programs import versions

app = typer.Typer(name="cli.ci", help="Commands of the CI.", no_args_is_help=True, pretty_exceptions_enable=False)

STACKS = ("dev", "staging", "prod")
"""Stacks that `deploy.yml` deploys, in this order."""

_PLUGINS = Path(__file__).parent.parent.parent / "requirements" / "plugins.json"

Stack = Annotated[str, typer.Option(help="Name of the stack file stacks/Pulumi.STACK.yaml.")]
Text = Annotated[Path, typer.Option(metavar="FILE", help="File with the Markdown to post.")]


@app.command()
def comment(
    stack: Stack, text: Text, pull_request: Annotated[int, typer.Option(help="Number of the pull request.")]
) -> None:
    """Post a preview on its pull request, in place of the previous one."""
    from cli.ci import github

    _run(lambda: github.comment(stack, text, pull_request, github.current_run(os.environ)))


@app.command()
def drift_issue(
    stack: Stack, text: Text, status: Annotated[int, typer.Option(help="Exit status of `multislice drift`.")]
) -> None:
    """Open, update or close the issue about a stack's drift."""
    from cli.ci import github

    _run(lambda: github.drift_issue(stack, text, status, github.current_run(os.environ)))


@app.command()
def newest(branch: Annotated[str, typer.Option(help="Branch to deploy.")]) -> None:
    """Fail unless this run is of the newest commit of the branch."""
    from cli.ci import github

    _run(lambda: github.require_newest(branch, github.current_run(os.environ)))


@app.command()
def set_up(
    repository: Annotated[str, typer.Option(help="Repository on GitHub, as OWNER/NAME.")],
    reviewer: Annotated[list[str], typer.Option(help="Reviewer, as login or ORGANIZATION/TEAM. Can be repeated.")],
    stack: Annotated[
        list[str] | None, typer.Option(help="Stack to deploy. Can be repeated.", show_default=", ".join(STACKS))
    ] = None,
    ephemeral: Annotated[str, typer.Option(help="Stack to copy for pull requests.")] = STACKS[0],
    unattended: Annotated[list[str] | None, typer.Option(help="Stack to deploy without a review.")] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Run the printed steps. Without this option, nothing changes.")
    ] = False,
) -> None:
    """Set up the GitHub environments and the Google Cloud accounts and rights of their jobs."""
    # Imports Pulumi's SDK.
    from cli.ci import set_up as command

    def done() -> None:
        wish = command.Wish(repository, stack or STACKS, ephemeral, reviewer, unattended or ())
        for line in command.set_up(wish, stack_file.stacks_folder(), apply=apply):
            print(line, flush=True)

    _run(done)


@app.command()
def licences() -> None:
    """Check that this project and every package of the image have an allowed licence."""

    def checked() -> str:
        known = of_image.licences()
        own = of_image.own_licence(of_image.CHECKOUT, known)
        packages = of_image.require_allowed(of_image.locked(of_image.IMAGE_LOCK), known)
        return f"tpu-multislice: {own}\n{packages} packages of the image, all allowed"

    _run(checked)


@app.command()
def sbom() -> None:
    """Print the bill of materials of the image's Python packages as CycloneDX JSON."""
    _run(lambda: of_image.bill_of_materials(of_image.IMAGE_LOCK, of_image.licences()).rstrip())


@app.command()
def plugins() -> None:
    """Install Pulumi's plugins after checking them against the checksums in requirements/plugins.json."""
    _run(lambda: of_pulumi.install(_PLUGINS, of_pulumi.SERVER, of_pulumi.plugins(), of_pulumi.own_platform()))


@app.command()
def lock_plugins() -> None:
    """Write the checksums of Pulumi's plugins to requirements/plugins.json."""
    _run(lambda: of_pulumi.lock(_PLUGINS, of_pulumi.SERVER, of_pulumi.plugins()))


@app.command()
def release_notes(
    tag: Annotated[str, typer.Argument(metavar="TAG", help="Tag of the release: v and the version.")],
) -> None:
    """Print the changelog's section of a release, after checking that the tag is the version of the package."""
    _run(lambda: notes(of_image.CHECKOUT, tag))


@app.command()
def pulumi_version() -> None:
    """Print the version of the Pulumi engine that the tests use, as the output `version` of a step."""
    _run(lambda: f"version={versions()['pulumi']}")


def _run(command: Callable[[], str | None]) -> None:
    def answer() -> int:
        if text := command():
            print(text)
        return 0

    raise typer.Exit(exit_status(answer))


if __name__ == "__main__":
    app()
