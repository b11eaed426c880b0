"""Finds the folder of the project on which a command works, and that of the program's own sources."""

import os
from pathlib import Path

CHECKOUT = Path(__file__).parent.parent
"""Folder of the sources: the repository, or the folder in which the package is installed."""
PROJECT_FILE, STACKS = "Pulumi.yaml", "stacks"


class ProjectError(Exception):
    """Raised when no folder of a project is found. The message says what to do."""


def find_project() -> Path:
    """Return the folder of the project: the nearest one at or above the working folder with `Pulumi.yaml` and `stacks`.

    Outside of projects it is the repository, if the program runs from there.

    Raises:
        ProjectError: the program is installed and the working folder is not in a project.
    """
    here = working_folder()
    if found := project_above(here) or project_above(CHECKOUT):
        return found
    raise ProjectError(
        f"expected {PROJECT_FILE} and a folder {STACKS} in {here} or a folder above it, found none;"
        " change to the folder of your project, or create one with `multislice init`"
    )


def project_above(start: Path) -> Path | None:
    """Return the nearest folder of a project at or above `start`. None: there is none."""
    folders = (start, *start.parents)
    return next((each for each in folders if (each / PROJECT_FILE).is_file() and (each / STACKS).is_dir()), None)


def working_folder() -> Path:
    """Return the working folder as the shell names it, which may contain links, as Pulumi does."""
    here, named = Path.cwd(), Path(os.environ.get("PWD", ""))
    return named if named.is_absolute() and named.exists() and named.samefile(here) else here
