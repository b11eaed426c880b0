"""What can be said of a job: a cause with its evidence, and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum

from cli.observed.snapshot import Job, Snapshot


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
    PAUSED = "paused"
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


def submit_again(snapshot: Snapshot, job: Job) -> str:
    """Return the command that submits a job again which has failed, was cancelled, or is never admitted again."""
    name = job.place.name
    if not job.declared:
        return f"kubectl delete jobset {name} -n {job.place.namespace}, then apply its file again"
    if snapshot.in_sandbox:
        return "make down, then make up"
    return f"pulumi up --stack {snapshot.stack} --replace '**::job-{name}'"


def counted(count: int, word: str) -> str:
    """`1 host`, `2 hosts`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
