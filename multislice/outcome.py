"""The end of a call as the bucket has it: the function's value, its exception, or why a host failed."""

import base64
import json
import pickle
import reprlib
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from multislice.errors import CallError, FunctionRaised, HostTraceback, ResultDamaged
from workloads.call.folder import RETURNED, CallFolder, Damaged, Seals
from workloads.spec import ExitCode, cause_order
from workloads.terminal import inert

_FOLDER = "failures"
_SHOWN_LINES = 40
_MOST_RECORDS, _MOST_RECORD_BYTES = 10_000, 1 << 20


@dataclass(frozen=True)
class Outcome:
    """Of one call, or of one input of many."""

    input: Any
    """That the function was called with; None for a call that was no part of a map."""
    value: Any = None
    error: BaseException | None = None
    """None: the function returned."""

    def result(self) -> Any:
        """The function's value.

        Raises:
            BaseException: what the function, or the call, raised.
        """
        if self.error is not None:
            raise self.error
        return self.value


def of_input(outcome: Outcome, value: Any) -> Outcome:
    """The outcome as that of one input of many."""
    if outcome.error is not None:
        outcome.error.add_note(f"input {reprlib.repr(value)}")
    return replace(outcome, input=value)


def found_outcome(seals: Seals) -> Outcome | None:
    """What the hosts wrote, its seal checked before anything is unpickled; None: nothing yet."""
    try:
        if (returned := seals.read(RETURNED)) is not None:
            return _returned(returned)
        raised = [json.loads(record) for record in seals.read_raised()]
    except Damaged as damaged:
        return Outcome(None, error=ResultDamaged(str(damaged)))
    if not raised:
        return None
    return Outcome(None, error=_exception(min(raised, key=lambda record: record["time"])))


def _returned(content: bytes) -> Outcome:
    try:
        return Outcome(None, value=pickle.loads(content))
    except Exception as error:  # noqa: BLE001 - what is unpickled runs code of its own
        told = f"the function returned, but its value cannot be made here: {type(error).__name__}: {error}"
        return Outcome(None, error=CallError(f"{told}; return plain values, or install what the image has"))


def _exception(record: dict[str, Any]) -> BaseException:
    """What the host raised, with that host's traceback as its cause."""
    host = record["host"]
    error = _unpickled(record) or FunctionRaised(f"{record['type']}: {record['message']}")
    error.__cause__ = HostTraceback(host, record["traceback"])
    error.add_note(f"raised on {host}")
    if isinstance(error, ModuleNotFoundError):
        error.add_note("what hosts import is a package of the image or a module in a folder of ships=")
    return error


def _unpickled(record: dict[str, Any]) -> BaseException | None:
    if record["exception"] is None:
        return None
    try:
        error = pickle.loads(base64.b64decode(record["exception"]))
    except Exception:  # noqa: BLE001 - such as a class of a package that is not installed here
        return None
    return error if isinstance(error, Exception) else None


def host_failure(folder: CallFolder) -> str | None:
    """The first failure that is a host's own, in words, with its stacks if it hung; None: no host says anything.

    The records are not sealed, and are shown alone. What is no record is passed over.
    """
    names = sorted(folder.names(_FOLDER))[:_MOST_RECORDS]
    records = [record for name in names if (record := _record(folder, name))]
    own = [record for record in records if not record.elsewhere] or records
    if not own:
        return None
    first = min(own, key=lambda record: cause_order(record.code, record.time))
    code = ExitCode(first.code).name if first.code in list(ExitCode) else first.code
    return inert("\n".join([f"host {first.host} ended ({code}): {first.cause}", *first.details[:_SHOWN_LINES]]))


class _Record(BaseModel):
    """What a host says of its end, as `workloads.training.ending` writes it."""

    host: str
    code: int
    cause: str
    details: list[str]
    time: float
    elsewhere: bool


def _record(folder: CallFolder, name: str) -> _Record | None:
    with suppress(ValidationError, Damaged):
        content = folder.read(name, _MOST_RECORD_BYTES)
        return None if content is None else _Record.model_validate_json(content)
    return None
