"""Validates the lines and records of a run.

The models give types and ranges of the facts that the report calculates with. Other facts pass unchecked. Validation
is strict: a number that the trainer wrote as text is an error.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Self

from etils import epath
from pydantic import BaseModel, ConfigDict, Field

from multislice_run.worlds import Roll, Worlds

_END_OF_TIME = 253_402_300_799
"""Last second of the year 9999, the latest that `datetime` can represent."""

_LARGEST = 1e100
"""Limit of all numbers. It is above every measurement, and small enough to add and to draw."""

_MOST_ATTEMPTS = 100_000

Moment = Annotated[float, Field(ge=0, le=_END_OF_TIME)]
"""Unix seconds."""
Number = Annotated[float, Field(ge=-_LARGEST, le=_LARGEST)]
Positive = Annotated[float, Field(ge=0, le=_LARGEST)]
Count = Annotated[int, Field(ge=0, le=2**53)]
FileName = Annotated[str, Field(pattern=r"^[\w-][\w.-]*$", max_length=200)]


class Record(BaseModel):
    """Facts of one kind of line."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", allow_inf_nan=False)


class Step(Record):
    """A line of `steps/`."""

    step: Count
    time: Moment
    seconds: Positive = Field(default=0.0, alias="step_seconds")
    host_seconds: Positive = 0.0
    local_save_seconds: Positive = 0.0
    loss: Number | None = None
    skipped: bool = False
    tokens_per_second: Positive | None = None
    mfu: Positive | None = None
    device_peak_bytes_in_use: list[Count | None] | None = None

    @property
    def peak_bytes(self) -> int | None:
        """Largest peak of the host's devices. `None` if unknown."""
        return max(filter(None, self.device_peak_bytes_in_use or ()), default=None)


class EventLine(Record):
    """Facts of every line of `ledger/`."""

    time: Moment
    event: str


class FailureRecord(Record):
    """A file of `failures/`."""

    host: str
    cause: str
    code: int
    time: Moment
    elsewhere: bool = False


class World(Record):
    """The newest attempt that the pods of a submission agreed on (`multislice_run.worlds`)."""

    number: Annotated[int, Field(ge=0, le=_MOST_ATTEMPTS)]
    """Number of attempts before it."""
    counted: Count
    """Restarts of processes that count towards `max_restarts`."""
    began: Moment
    ended: int | None
    """Exit code with which the pods ended the job after it. `None`: they did not."""


class Manifest(Record):
    """The file `manifest.json`."""

    model_config = ConfigDict(extra="allow")

    spec: dict[str, Any] = {}


class StartFacts(Record):
    """Facts of the event `start`."""

    run_id: FileName
    restart_attempt: Count
    began: Moment | None = None
    host: str | None = None
    slices: Annotated[int, Field(gt=0)] | None = None
    asked_slices: Annotated[int, Field(gt=0)] | None = None
    usd_per_hour: Positive | None = None


class StepFacts(Record):
    """Facts of events that have a step."""

    step: Count


class LocalFacts(StepFacts):
    """Facts of the event `RestoredLocally`."""

    saved: Count


class EvaluationFacts(Record):
    """Facts of the event `Evaluation`. The loss may be infinite or NaN."""

    step: Count
    loss: Annotated[float, Field(allow_inf_nan=True)] | None


class PaceFacts(Record):
    """Facts of the event `pace`."""

    host: str
    step: Count
    step_seconds: Positive
    host_seconds: Positive


FACTS: dict[str, type[Record]] = {
    "start": StartFacts,
    "RunStarted": StepFacts,
    "RestoredLocally": LocalFacts,
    "restore": StepFacts,
    "CheckpointSaved": StepFacts,
    "CheckpointSkipped": StepFacts,
    "Evaluation": EvaluationFacts,
    "pace": PaceFacts,
}
"""Facts of each event that the report calculates with."""


@dataclass(frozen=True)
class Event:
    """A line of `ledger/`."""

    time: float
    name: str
    facts: dict[str, Any]

    @classmethod
    def parse(cls, line: Any) -> Self:
        """Return the event of a line.

        Raises:
            pydantic.ValidationError: the line is not valid.
        """
        name = EventLine.model_validate(line).event
        if name in FACTS:
            FACTS[name].model_validate(line)
        return cls(line.pop("time"), line.pop("event"), line)


def read_record[Kind: BaseModel](path: epath.Path, kind: type[Kind], notes: list[str]) -> Kind | None:
    """Read a JSON file of that kind. If it is missing or not valid, add a note and return `None`."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        notes.append(f"{path.name} is missing")
    except ValueError as fault:
        notes.append(f"{path.parent.name}/{path.name} cannot be read: {_in_short(fault)}")
    return None


def _in_short(fault: Exception) -> str:
    return "; ".join(str(fault).splitlines()[:3])


def read_world(storage: epath.Path, run_id: str, notes: list[str]) -> World | None:
    """Return the newest attempt of a submission. `None`: there is none, or its record is damaged, which is noted."""
    try:
        if found := Worlds(storage, run_id).newest():
            ended = Roll(storage, run_id, found.number + 1).ended()
            return World.model_validate({**asdict(found), "ended": ended.code if ended else None})
    except (ValueError, TypeError) as fault:
        notes.append(f"worlds/{run_id} cannot be read: {_in_short(fault)}")
    return None


_NAME = re.compile(r".+-(?P<attempt>[0-9]{1,9})-(?P<began>[0-9]{1,10})\.json")


@dataclass(frozen=True)
class Failure:
    """Failure of a host, with its cause."""

    attempt: int
    host: str
    cause: str
    code: int
    time: float


@dataclass(frozen=True)
class ProcessFailure:
    """A failure and the process that it ended."""

    run_id: str
    """The submission."""
    began: int
    """Start time of the process, in whole Unix seconds."""
    failure: Failure


def read_failures(
    storage: epath.Path, notes: list[str], run_ids: Collection[str] | None = None
) -> list[ProcessFailure]:
    """Return the failures of these submissions, oldest first. `None` means all submissions.

    Files that cannot be read are added to `notes`. Records of a failure on another host are skipped.
    """
    folder, names = storage / "failures", ["*"] if run_ids is None else sorted(run_ids)
    paths = [path for name in names for path in sorted(folder.glob(f"{name}/*.json"))]
    return sorted(_read_all(paths, notes), key=lambda ended: ended.failure.time)


def group_by_start(early: Iterable[ProcessFailure], others: Sequence[float]) -> list[list[ProcessFailure]]:
    """Group the failures of attempts that left no other files by attempt.

    `others` are the times when the other attempts began. A host fails once in an attempt, and attempts do not overlap.
    """
    found: list[list[ProcessFailure]] = []
    for ended in sorted(early, key=lambda ended: (ended.run_id, ended.failure.attempt, ended.began)):
        if found and _same_start(found[-1], ended, others):
            found[-1].append(ended)
        else:
            found.append([ended])
    return sorted(found, key=lambda hosts: hosts[0].began)


def _same_start(hosts: Sequence[ProcessFailure], ended: ProcessFailure, others: Sequence[float]) -> bool:
    first = hosts[0]
    attempt = (first.run_id, first.failure.attempt) == (ended.run_id, ended.failure.attempt)
    again = any(each.failure.host == ended.failure.host for each in hosts)
    return attempt and not again and not any(first.began < other <= ended.began for other in others)


def _read_all(paths: Iterable[epath.Path], notes: list[str]) -> Iterator[ProcessFailure]:
    for path in paths:
        name = _NAME.fullmatch(path.name)
        if name is None:
            notes.append(f"failures/{path.parent.name}/{path.name}: expected the name <host>-<restart>-<second>.json")
        elif (record := read_record(path, FailureRecord, notes)) and not record.elsewhere:
            failure = Failure(int(name["attempt"]), record.host, record.cause, record.code, record.time)
            yield ProcessFailure(path.parent.name, int(name["began"]), failure)
