"""What can be said of a job: a cause with its evidence, and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """What a finding is about, for programs that read it."""

    MISSING = "missing"
    NO_WORKLOAD = "no workload"
    QUEUE_CLOSED = "queue closed"
    QUOTA_TAKEN = "quota taken"
    QUOTA_TOO_SMALL = "quota too small"
    NO_SLICE_FREE = "no slice free"
    NOT_ADMITTED = "not admitted"
    CAPACITY_PENDING = "capacity pending"
    BACKING_OFF = "backing off"
    DEACTIVATED = "deactivated"
    PREEMPTED = "preempted"
    EVICTED = "evicted"
    CREATION_REFUSED = "creation refused"
    NO_NODE = "no node"
    NODE_LOST = "node lost"
    BAD_HOST = "bad host"
    NOT_STARTED = "container not started"
    RESTARTED = "restarted"
    FAILED = "failed"
    SILENT = "silent"
    COMPLETED = "completed"
    RUNNING = "running"


@dataclass(frozen=True)
class Finding:
    """One thing that is so, or was."""

    cause: Cause
    what: str
    """One or two sentences."""
    since: float | None
    """In seconds since the epoch; None: nobody has said."""
    evidence: tuple[str, ...] = ()
    """Who says so, in their words."""
    next: tuple[str, ...] = ()
    """What to do, with the command where there is one; empty if nothing is to be done."""


def counted(count: int, word: str) -> str:
    """`1 host`, `2 hosts`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
