"""Types of the lines and files of a run. Writers make them and readers check them."""

import math
from dataclasses import dataclass, field
from typing import Annotated, Any

from multislice_run.records.events import EventName
from multislice_run.records.shapes import matching, within

_MAX_MAGNITUDE = 1e100
"""Limit of all numbers. It is above every measurement, and small enough to add and to draw."""

Moment = Annotated[float, within(0, 253_402_300_799)]
"""Unix seconds, up to the year 9999, the latest that `datetime` can represent."""
Number = Annotated[float, within(-_MAX_MAGNITUDE, _MAX_MAGNITUDE)]
Positive = Annotated[float, within(0, _MAX_MAGNITUDE)]
Count = Annotated[int, within(0, 2**53)]
Slices = Annotated[int, within(1, 2**53)]
FileName = Annotated[str, matching(r"[\w-][\w.-]{0,199}")]
"""Name of a folder, which leads to no other one."""


@dataclass(frozen=True, kw_only=True)
class StepLine:
    """A line of `steps/`. A value that is None is unknown and left out. One that is not finite is written as null."""

    step: Count
    """Number of steps of the run that are done."""
    time: Moment
    """Time at which the devices had finished the step."""
    batch: Count | None = None
    """Number of its batch, from 0, which is ahead of the step after a rollback."""
    loss: Number | None = None
    """Mean over all tokens of the global batch."""
    z_loss: Number | None = None
    gradient_norm: Number | None = None
    """Norm before clipping."""
    skipped: bool = False
    """Whether the step changed nothing."""
    skipped_steps: Count = 0
    """Number of such steps in this attempt."""
    step_seconds: Positive = 0.0
    """Time since the end of the previous step, without saves and evaluations."""
    host_seconds: Positive = 0.0
    """Part of it in which the devices waited for this host."""
    local_save_seconds: Positive | None = None
    """Time before the step in which the devices waited for a save to the memory of the pods."""
    tokens_per_second: Positive | None = None
    mfu: Positive | None = None
    """Share of the rated peak of all chips, at most 1."""
    device_bytes_in_use: list[Count | None] | None = None
    """Memory of each device of this host."""
    device_peak_bytes_in_use: list[Count | None] | None = None

    def facts(self) -> dict[str, Any]:
        """Return the values as JSON has them, which has neither NaN nor infinities."""
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in vars(self).items()
            if value is not None
        }

    @property
    def peak_bytes(self) -> int | None:
        """Largest peak of the host's devices. `None` if unknown."""
        return max(filter(None, self.device_peak_bytes_in_use or ()), default=None)


@dataclass(frozen=True)
class FailureRecord:
    """A file of `failures/`: why a host ended."""

    cause: str
    host: str
    code: int
    """Exit code."""
    time: Moment
    details: list[str] = field(default_factory=list[str])
    """Lines of the traceback or of the stacks."""
    elsewhere: bool = False
    """Whether it is another host's failure."""


@dataclass(frozen=True)
class Current:
    """The file `current.json`."""

    run: Annotated[str, matching(r"(?!\.\.?\Z)[^/]{1,200}")]
    """Run that the next attempt continues. It leads to no folder but its own."""


@dataclass(frozen=True)
class LedgerLine:
    """What every line of `ledger/` has, besides the facts of its event."""

    time: Moment
    event: str
    """An `EventName`, or one of another version."""


@dataclass(frozen=True)
class StartFacts:
    """Facts of `start`."""

    run_id: FileName
    """Submission of the job."""
    restart_attempt: Count
    """Number of restarts before this attempt."""
    began: Moment | None = None
    """Time at which the host's process began."""
    host: str | None = None
    slices: Slices | None = None
    """Number of slices that the attempt runs on."""
    asked_slices: Slices | None = None
    """Number of slices that the job asks for."""
    usd_per_hour: Positive | None = None
    """Price of all of these slices."""


@dataclass(frozen=True)
class StepFacts:
    """Facts of events that have a step."""

    step: Count


@dataclass(frozen=True)
class LocalFacts(StepFacts):
    """Facts of `restored_locally`."""

    saved: Count
    """Step of the newest checkpoint in storage. 0: there is none."""


@dataclass(frozen=True)
class EvaluationFacts(StepFacts):
    """Facts of `evaluation`."""

    loss: float
    """Loss on the held-out data, which may be infinite or NaN."""


@dataclass(frozen=True)
class Pace:
    """Facts of `pace`: mean times of one host over its last steps."""

    host: str
    step: Count
    step_seconds: Positive
    host_seconds: Positive
    """Part of it in which the devices waited for this host to give them the step."""


FACTS: dict[str, type] = {
    EventName.START: StartFacts,
    EventName.RUN_STARTED: StepFacts,
    EventName.RESTORED_LOCALLY: LocalFacts,
    EventName.RESTORE: StepFacts,
    EventName.CHECKPOINT_SAVED: StepFacts,
    EventName.CHECKPOINT_SKIPPED: StepFacts,
    EventName.EVALUATION: EvaluationFacts,
    EventName.PACE: Pace,
}
"""Facts of each event that readers calculate with. Other facts pass unchecked."""
