"""The file that `multislice confirm` writes and that people send. It names no project, stack, job or person."""

from datetime import date
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from infra.settings.errors import from_validation
from workloads.spec import Spec

FORMAT = 1
"""Version of the format. It changes when a reader of the previous version would misread a file."""

type Word = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9 ._-]{0,39}$")]
"""A short word of this program, such as the name of a kernel. It has no room for an address or a path."""
type Result = Literal["confirmed", "differs", "not asked"]
type Reason = Literal["needs chips", "needs Google Cloud", "no evidence", "a person has to look", ""]


class Answer(Spec):
    """The answer to one item."""

    item: Word
    result: Result
    found: dict[Word, Annotated[float, Field(allow_inf_nan=False)] | Word] = {}
    why: Reason = ""
    """Why it was not asked. Empty if it was."""


class Slices(Spec):
    """A slice group of the stack, without its name."""

    generation: Word
    topology: Word
    capacity: Word
    count: int


class Confirmation(Spec):
    """What one run of `multislice confirm` found."""

    format: Literal[1] = FORMAT
    date: date
    where: Literal["google", "sandbox"]
    version: Annotated[str, Field(pattern=r"^[0-9][0-9a-z.+]{0,39}$")]
    """Version of this program."""
    slices: tuple[Slices, ...]
    answers: Annotated[tuple[Answer, ...], Field(min_length=1)]


class NotAConfirmation(ValueError):
    """Raised when a file is not a confirmation. The message names every error."""


def read_confirmation(path: Path) -> Confirmation:
    """Return the confirmation in a file. Raise NotAConfirmation with all errors of the file."""
    try:
        return Confirmation.model_validate_json(path.read_bytes())
    except ValidationError as error:
        lines = "".join(f"\n  - {each}" for each in from_validation(error, "", Confirmation))
        raise NotAConfirmation(f"{path} must be a file of `multislice confirm`, got:{lines}") from None


def confirmations(folder: Path) -> list[tuple[str, Confirmation]]:
    """Return the confirmations in a folder with their file names, in the order of the names.

    Raise NotAConfirmation with the first file that is none, or that a sandbox wrote.
    """
    found = [(path.name, read_confirmation(path)) for path in sorted(folder.glob("*.json"))]
    for name, each in found:
        if each.where == "sandbox":
            raise NotAConfirmation(f"{folder / name} was written by a sandbox, which confirms nothing; remove it")
    return found
