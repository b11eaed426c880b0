"""The outcome of a call, as the bucket has it, and the errors that a call can raise besides those of the function.

The function's own exception is raised unchanged, with a HostTraceback as its cause that shows where it was raised.
"""

import base64
import json
import reprlib
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from infra.cluster.kubernetes import UNREACHABLE
from multislice_run.exit_codes import cause_order, exit_name
from multislice_run.records.lines import FailureRecord, parse
from workloads.call.folder import RETURNED, CallFolder, Damaged, Seals
from workloads.call.pickling import unpickled
from workloads.terminal import inert


class CallError(Exception):
    """Base class of all errors of this package."""


class NoSuchStack(CallError):
    """Raised when the stack is not up or cannot be reached."""


class BucketFailed(CallError):
    """Raised when the stack's checkpoint bucket cannot be read or written from this machine."""


class Refused(CallError, ValueError):
    """Raised when a call is not valid. The message says what to change. Nothing was submitted."""


class FunctionRaised(CallError):
    """Raised when the function's exception cannot be recreated here. The message has its type and message."""


class HostFailed(CallError):
    """Raised when a host failed for a reason other than the function. The message says why."""


class CallGone(CallError):
    """Raised when the call was cancelled, or ended so long ago that it was removed."""


class ResultDamaged(CallError):
    """Raised when the bucket has other data than the hosts of the call wrote."""


class HostTraceback(Exception):
    """Cause of an exception that the function raised on a host. It has the host and its traceback."""

    def __init__(self, host: str, lines: list[str]) -> None:
        super().__init__(host, lines)
        self.host = host
        self.lines = lines

    def __str__(self) -> str:
        return "\n".join([f"on {self.host}:", "", *self.lines])


@contextmanager
def cluster(stack: str) -> Generator[None]:
    """Raise NoSuchStack if the cluster of a stack does not answer, or refuses."""
    try:
        yield
    except UNREACHABLE as error:
        raise NoSuchStack(
            f"the cluster of stack {stack} cannot be reached: {error}; check that you are logged in and online, and"
            " that you are a member of the call's team"
        ) from None


@contextmanager
def bucket(name: str) -> Generator[None]:
    """Raise BucketFailed if a bucket does not answer, or refuses."""
    try:
        yield
    except Exception as error:
        if not _is_of_storage(error):
            raise
        message = " ".join(str(error).split()) or type(error).__name__
        raise BucketFailed(
            f"gs://{name} cannot be read or written from here: {message}; check that you are online and that the user"
            " of `gcloud auth application-default login` has the role roles/storage.objectUser on it"
        ) from None


def _is_of_storage(error: Exception) -> bool:
    # Importing gcsfs takes half a second, and the module that raised the error is already imported.
    kinds: list[type[Exception]] = [OSError]
    if retry := sys.modules.get("gcsfs.retry"):
        kinds += [retry.HttpError, *retry.RETRIABLE_EXCEPTIONS]
    if auth := sys.modules.get("google.auth.exceptions"):
        kinds.append(auth.GoogleAuthError)
    return isinstance(error, tuple(kinds))


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
