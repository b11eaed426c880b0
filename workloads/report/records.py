"""What a line or record of a run must be to be believed.

Owns types and ranges of the facts that the report counts with; other facts pass as they are. Nothing is converted:
what the trainer did not write as a number is none.
"""

from typing import Annotated, Any

from etils import epath
from pydantic import BaseModel, ConfigDict, Field

_END_OF_TIME = 253_402_300_799
"""Last second of the year 9999, after which no calendar goes."""

_LARGEST = 1e100
"""More than anything that is measured, and little enough to be added and drawn."""

Moment = Annotated[float, Field(ge=0, le=_END_OF_TIME)]
"""Unix seconds."""
Number = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
Positive = Annotated[float, Field(ge=0, le=_LARGEST)]
Count = Annotated[int, Field(ge=0, le=2**53)]
FileName = Annotated[str, Field(pattern=r"^[\w.-]+$", max_length=200)]


class Record(BaseModel):
    """Facts of one kind of line."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


class StepLine(Record):
    """A line of `steps/`."""

    step: Count
    time: Moment
    step_seconds: Positive = 0.0
    host_seconds: Positive = 0.0
    loss: Number | None = None
    skipped: bool = False
    tokens_per_second: Positive | None = None
    mfu: Positive | None = None
    device_peak_bytes_in_use: list[Count | None] | None = None


class EventLine(Record):
    """What every line of `ledger/` has."""

    time: Moment
    event: str


class FailureRecord(Record):
    """A file of `failures/`."""

    host: str
    cause: str
    code: int
    time: Moment
    elsewhere: bool = False


class Manifest(Record):
    """The file `manifest.json`."""

    model_config = ConfigDict(extra="allow")

    spec: dict[str, Any] = {}


class StartFacts(Record):
    """Of the event `start`."""

    run_id: FileName
    restart_attempt: Count
    began: Moment | None = None
    host: str | None = None
    slices: Annotated[int, Field(gt=0)] | None = None
    asked_slices: Annotated[int, Field(gt=0)] | None = None
    usd_per_hour: Positive | None = None


class StepFacts(Record):
    """Of events that name a step."""

    step: Count


class EvaluationFacts(Record):
    """Of the event `Evaluation`; a loss that is not finite is one."""

    step: Count
    loss: Annotated[float, Field(allow_inf_nan=True)] | None


class PaceFacts(Record):
    """Of the event `pace`."""

    host: str
    step: Count
    step_seconds: Positive
    host_seconds: Positive


FACTS: dict[str, type[Record]] = {
    "start": StartFacts,
    "RunStarted": StepFacts,
    "CheckpointSaved": StepFacts,
    "CheckpointSkipped": StepFacts,
    "Evaluation": EvaluationFacts,
    "pace": PaceFacts,
}
"""By event, what the report counts with."""


def must_hold(line: dict[str, Any]) -> None:
    """Check a line of `ledger/`.

    Raises:
        pydantic.ValidationError: it cannot be believed.
    """
    event = EventLine.model_validate(line).event
    if event in FACTS:
        FACTS[event].model_validate(line)


def believed[Kind: BaseModel](path: epath.Path, kind: type[Kind], notes: list[str]) -> Kind | None:
    """The file as JSON of that kind; None and a note if it is none."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        notes.append(f"{path.name} is missing")
    except ValueError as fault:
        told = "; ".join(str(fault).splitlines()[:3])
        notes.append(f"{path.parent.name}/{path.name} cannot be read: {told}")
    return None
