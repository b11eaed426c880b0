"""Finds the folder of the project on which a command works, and that of the program's own sources."""

import os
from pathlib import Path

from infra.stack.command_lines import UserError

CHECKOUT = Path(__file__).parents[2]
"""Folder of the sources: the repository, or the package `tpu_multislice`."""
IMPORTED_FROM = Path(__file__).parents[__name__.count(".")]
"""Folder in which Python finds the program's modules: the repository, or the one with the package `tpu_multislice`."""
PROJECT_FILE, STACKS = "Pulumi.yaml", "stacks"


class ProjectError(UserError):
    """Raised when no folder of a project is found. The message says what to do."""


def find_project() -> Path:
    """Return the folder of the project: the nearest one at or above the working folder with `Pulumi.yaml` and `stacks`.

    Outside of projects it is the repository, if the program runs from there.

    Raises:
        ProjectError: the program is installed and the working folder is not in a project.
    """
    here = working_folder()
    if found := project_above(here):
        return found
    if _is_project(CHECKOUT):
        return CHECKOUT
    raise ProjectError(
        f"expected {PROJECT_FILE} and a folder {STACKS} in {here} or a folder above it, found none;"
        " change to the folder of your project, or create one with `multislice init`"
    )


def project_above(start: Path) -> Path | None:
    """Return the nearest folder of a project at or above `start`. None: there is none."""
    return next((folder for folder in (start, *start.parents) if _is_project(folder)), None)


def _is_project(folder: Path) -> bool:
    return (folder / PROJECT_FILE).is_file() and (folder / STACKS).is_dir()


def working_folder() -> Path:
    """Return the working folder as the shell names it, which may contain links, as Pulumi does."""
    here, named = Path.cwd(), Path(os.environ.get("PWD", ""))
    return named if named.is_absolute() and named.exists() and named.samefile(here) else here
