"""What is raised where a stack's cluster or bucket does not answer, whoever asks for what."""

import sys
from collections.abc import Generator
from contextlib import contextmanager

from infra.kubernetes import UNREACHABLE
from multislice.errors import BucketFailed, NoSuchStack


@contextmanager
def cluster(stack: str) -> Generator[None]:
    """Around what is asked of a stack's cluster.

    Raises:
        NoSuchStack: it does not answer, or refuses.
    """
    try:
        yield
    except UNREACHABLE as fault:
        raise NoSuchStack(
            f"the cluster of stack {stack} cannot be asked: {fault}; see that you are logged in and online, and that"
            " the call's team is yours"
        ) from None


@contextmanager
def bucket(name: str) -> Generator[None]:
    """Around what is read from a bucket or written to it.

    Raises:
        BucketFailed: it does not answer, or refuses.
    """
    try:
        yield
    except Exception as fault:
        if not _is_of_storage(fault):
            raise
        told = " ".join(str(fault).split()) or type(fault).__name__
        raise BucketFailed(
            f"gs://{name} cannot be read or written from here: {told}; see that you are online and that"
            " `gcloud auth application-default login` was somebody with roles/storage.objectUser on it"
        ) from None


def _is_of_storage(fault: Exception) -> bool:
    # Who raised it is loaded; and beside Pulumi gcsfs cannot be, for both bring the same protocol buffers.
    kinds: list[type[Exception]] = [OSError]
    if retry := sys.modules.get("gcsfs.retry"):
        kinds += [retry.HttpError, *retry.RETRIABLE_EXCEPTIONS]
    if auth := sys.modules.get("google.auth.exceptions"):
        kinds.append(auth.GoogleAuthError)
    return isinstance(fault, tuple(kinds))
