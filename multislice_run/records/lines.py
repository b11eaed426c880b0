"""Types of the lines and files of a run, which writers make, and their reading from JSON.

A dataclass says which keys a record has, of which types and in which ranges.
"""

import math
import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from inspect import formatannotation
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from multislice_run.records.events import EventName

_Kind = TypeVar("_Kind")
_Check = Callable[[Any], bool]

_MAX_INTEGER = 2**1000
"""Limit of integers where a float is expected. `float` can represent it."""


def within(least: float, most: float) -> _Check:
    """Return the check of a number for `Annotated`. NaN is in no range."""
    return lambda value: least <= value <= most


def matching(expression: str) -> _Check:
    """Return the check of a text for `Annotated`."""
    return lambda value: re.fullmatch(expression, value) is not None


def parse(kind: type[_Kind], document: Any) -> _Kind:
    """Return the record in a JSON value. Keys that `kind` does not have are ignored.

    Nothing is converted: a number that was written as text is an error.

    Raises:
        ValueError: the value is no object, a key without a default is missing, or a value has another type or range.
    """
    if not isinstance(document, dict):
        raise ValueError(f"expected an object, got {document!r:.40}")
    found: dict[str, Any] = {}
    for name, (required, check) in _checks(kind).items():
        if name in document:
            value = found[name] = document[name]
            if not check(value):
                expected = formatannotation(get_type_hints(kind)[name])
                raise ValueError(f"{name}: expected {expected} in its range, got {value!r:.40}")
        elif required:
            raise ValueError(f"{name} is missing")
    return kind(**found)


@cache
def _checks(kind: Any) -> dict[str, tuple[bool, _Check]]:
    """Return for each key whether it must be there, and the check of its value."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        each.name: (each.default is MISSING and each.default_factory is MISSING, _check(hints[each.name]))
        for each in fields(kind)
    }


def _check(hint: Any) -> _Check:
    """Return the check that a value has this type: a plain one, a list, or one of them or None."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        of_type, limit = _check(args[0]), args[1]
        return lambda value: of_type(value) and limit(value)
    if origin in (Union, UnionType):
        (of_known,) = (_check(each) for each in args if each is not NoneType)
        return lambda value: value is None or of_known(value)
    if origin is list:
        of_item = _check(args[0])
        return lambda value: isinstance(value, list) and all(map(of_item, value))
    if hint is float:
        return lambda value: type(value) is float or (type(value) is int and abs(value) < _MAX_INTEGER)
    return lambda value: type(value) is hint


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
