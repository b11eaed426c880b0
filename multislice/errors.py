"""The errors that a call may raise, in addition to those of the function itself.

    CallError
    ├── NoSuchStack      the stack is not up, or cannot be reached
    ├── BucketFailed     its checkpoint bucket cannot be read or written from here
    ├── Refused          the call cannot be made like this; nothing was submitted
    ├── FunctionRaised   the function raised an error that cannot be sent here
    ├── HostFailed       a host ended, and not because of the function
    ├── CallGone         cancelled, or ended more than a day ago
    └── ResultDamaged    the bucket has something else than the hosts wrote

The function's own exception is raised as what it is, caused by a HostTraceback that shows where it came from.
"""

import sys
from collections.abc import Generator
from contextlib import contextmanager

from infra.kubernetes import UNREACHABLE


class CallError(Exception):
    """Base of all errors of this package."""


class NoSuchStack(CallError):
    """The stack is not up, or cannot be reached."""


class BucketFailed(CallError):
    """The stack's checkpoint bucket cannot be read or written from here."""


class Refused(CallError, ValueError):
    """The call cannot be made like this; the message says what to change. Nothing was submitted."""


class FunctionRaised(CallError):
    """The function raised an exception that cannot be recreated here; the message has its type and message."""


class HostFailed(CallError):
    """A host ended, and not because of the function; the message says why."""


class CallGone(CallError):
    """The call was cancelled, or ended so long ago that it has been removed."""


class ResultDamaged(CallError):
    """The bucket has something else than the hosts of the call wrote."""


class HostTraceback(Exception):
    """Cause of an exception that a host's function raised: which host, and its traceback."""

    def __init__(self, host: str, lines: list[str]) -> None:
        super().__init__(host, lines)
        self.host = host
        self.lines = lines

    def __str__(self) -> str:
        return "\n".join([f"on {self.host}:", "", *self.lines])


@contextmanager
def cluster(stack: str) -> Generator[None]:
    """Surround requests to a stack's cluster.

    Raises:
        NoSuchStack: it does not answer, or refuses.
    """
    try:
        yield
    except UNREACHABLE as error:
        raise NoSuchStack(
            f"the cluster of stack {stack} cannot be reached: {error}; check that you are logged in and online, and"
            " that the call's team is yours"
        ) from None


@contextmanager
def bucket(name: str) -> Generator[None]:
    """Surround reads and writes of a bucket.

    Raises:
        BucketFailed: it does not answer, or refuses.
    """
    try:
        yield
    except Exception as error:
        if not _is_of_storage(error):
            raise
        message = " ".join(str(error).split()) or type(error).__name__
        raise BucketFailed(
            f"gs://{name} cannot be read or written from here: {message}; check that you are online and that"
            " `gcloud auth application-default login` was by a user with roles/storage.objectUser on it"
        ) from None


def _is_of_storage(error: Exception) -> bool:
    # The module that raised it is loaded. gcsfs cannot be imported after Pulumi: both bring the same protocol buffers.
    kinds: list[type[Exception]] = [OSError]
    if retry := sys.modules.get("gcsfs.retry"):
        kinds += [retry.HttpError, *retry.RETRIABLE_EXCEPTIONS]
    if auth := sys.modules.get("google.auth.exceptions"):
        kinds.append(auth.GoogleAuthError)
    return isinstance(error, tuple(kinds))
