"""Errors that a call can raise, in addition to those of the function itself.

The function's own exception is raised unchanged, with a HostTraceback as its cause that shows where it was raised.
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager

from infra.cluster.kubernetes import UNREACHABLE


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
