"""What a line or record of a run must be to be believed.

Owns types and ranges of the facts that the report counts with; other facts pass as they are. Nothing is converted:
what the trainer did not write as a number is none.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
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


_NAME = re.compile(r".+-(?P<attempt>[0-9]{1,9})-(?P<began>[0-9]{1,10})\.json")


@dataclass(frozen=True)
class Failure:
    """What a host failed of."""

    attempt: int
    host: str
    cause: str
    code: int
    time: float


@dataclass(frozen=True)
class Told:
    """A failure, and which process it ended."""

    run_id: str
    """The submission."""
    began: int
    """The second in which the process did."""
    failure: Failure


def read_failures(storage: epath.Path, notes: list[str], run_ids: Collection[str] | None = None) -> list[Told]:
    """Failures of these submissions, None: of all, the first one first; `notes` gets what cannot be read.

    What a host heard of another one's failure is none.
    """
    return sorted(_found(storage / "failures", notes, run_ids), key=lambda told: told.failure.time)


def by_start(early: Iterable[Told], others: Sequence[float]) -> list[list[Told]]:
    """Failures of starts that left nothing else, start by start; the `others` began at these moments.

    A host fails once in a start, and no other start begins while one lasts.
    """
    found: list[list[Told]] = []
    for told in sorted(early, key=lambda told: (told.run_id, told.failure.attempt, told.began)):
        if found and _same_start(found[-1], told, others):
            found[-1].append(told)
        else:
            found.append([told])
    return sorted(found, key=lambda hosts: hosts[0].began)


def _same_start(hosts: Sequence[Told], told: Told, others: Sequence[float]) -> bool:
    first = hosts[0]
    attempt = (first.run_id, first.failure.attempt) == (told.run_id, told.failure.attempt)
    again = told.failure.host in [each.failure.host for each in hosts]
    return attempt and not again and not any(first.began < other <= told.began for other in others)


def _found(folder: epath.Path, notes: list[str], run_ids: Collection[str] | None) -> Iterator[Told]:
    for path in _paths(folder, run_ids):
        name = _NAME.fullmatch(path.name)
        if name is None:
            notes.append(f"failures/{path.parent.name}/{path.name}: expected the name <host>-<restart>-<second>.json")
        elif (record := believed(path, FailureRecord, notes)) and not record.elsewhere:
            failure = Failure(int(name["attempt"]), record.host, record.cause, record.code, record.time)
            yield Told(path.parent.name, int(name["began"]), failure)


def _paths(folder: epath.Path, run_ids: Collection[str] | None) -> list[epath.Path]:
    if run_ids is None:
        return sorted(folder.glob("*/*.json")) if folder.exists() else []
    return [
        path for name in sorted(run_ids) if (folder / name).exists() for path in sorted((folder / name).glob("*.json"))
    ]
