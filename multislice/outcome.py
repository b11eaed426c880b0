"""Reads the outcome of a call from the bucket: the function's value, its exception, or why a host failed."""

import base64
import json
import reprlib
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from multislice.errors import CallError, FunctionRaised, HostTraceback, ResultDamaged
from multislice_run.exit_codes import cause_order, exit_name
from multislice_run.records.lines import FailureRecord, parse
from workloads.call.folder import RETURNED, CallFolder, Damaged, Seals
from workloads.call.pickling import unpickled
from workloads.terminal import inert

_FOLDER = "failures"
_SHOWN_LINES = 40
_MAX_RECORDS, _MAX_RECORD_BYTES = 10_000, 1 << 20


@dataclass(frozen=True)
class Outcome:
    """Result of a call."""

    input: Any
    """Input of the call in a map. None: the call was not part of a map."""
    value: Any = None
    error: BaseException | None = None
    """Exception of the function or the call. None: the function returned."""

    def result(self) -> Any:
        """Return the value of the function.

        Raises:
            BaseException: The function or the call raised it.
        """
        if self.error is not None:
            raise self.error
        return self.value


def with_input(outcome: Outcome, value: Any) -> Outcome:
    """Return the outcome with the input of its call in a map."""
    if outcome.error is not None:
        outcome.error.add_note(f"input {reprlib.repr(value)}")
    return replace(outcome, input=value)


def read_outcome(seals: Seals) -> Outcome | None:
    """Return the outcome that the hosts wrote, after checking its seal. None: nothing was written yet."""
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
        return Outcome(None, value=unpickled(content))
    except Exception as error:  # noqa: BLE001 - unpickling runs code of the value
        message = f"the function returned, but its value cannot be unpickled here: {type(error).__name__}: {error}"
        return Outcome(None, error=CallError(f"{message}; return plain values, or install the packages of the image"))


def _exception(record: dict[str, Any]) -> BaseException:
    """Return the exception that the host raised, with the host's traceback as its cause."""
    host = record["host"]
    error = _unpickled(record) or FunctionRaised(f"{record['type']}: {record['message']}")
    error.__cause__ = HostTraceback(host, record["traceback"])
    error.add_note(f"raised on {host}")
    if isinstance(error, ModuleNotFoundError):
        error.add_note("hosts can import packages of the image and modules in the folders of ships=")
    return error


def _unpickled(record: dict[str, Any]) -> BaseException | None:
    if record["exception"] is None:
        return None
    try:
        error = unpickled(base64.b64decode(record["exception"]))
    except Exception:  # noqa: BLE001 - such as a class of a package that is not installed here
        return None
    return error if isinstance(error, Exception) else None


def host_failure(folder: CallFolder) -> str | None:
    """Return a text about the first host that failed by itself, with its stacks if it hung. None: no host has a record.

    The records are not sealed, so they are only shown. Files that are not records are ignored.
    """
    names = sorted(folder.names(_FOLDER))[:_MAX_RECORDS]
    records = [record for name in names if (record := _record(folder, name))]
    own = [record for record in records if not record.elsewhere] or records
    if not own:
        return None
    first = min(own, key=lambda record: cause_order(record.code, record.time))
    ended = f"host {first.host} ended ({exit_name(first.code)}): {first.cause}"
    return inert("\n".join([ended, *first.details[:_SHOWN_LINES]]))


def _record(folder: CallFolder, name: str) -> FailureRecord | None:
    with suppress(ValueError, RecursionError, Damaged):
        content = folder.read(name, _MAX_RECORD_BYTES)
        return None if content is None else parse(FailureRecord, json.loads(content))
    return None
