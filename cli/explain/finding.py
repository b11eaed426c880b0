"""Findings about a job, each with its cause, its evidence and what to do."""

from dataclasses import dataclass, replace
from enum import StrEnum

from cli.observed.snapshot import JobStatus, Snapshot
from infra.cluster.job_state import Kind
from infra.stack.command_lines import Reader, replacing
from infra.stack.names import job_resource
from multislice_run.exit_codes import MEANINGS, OTHER, SIGKILL, SIGSEGV, Meaning


class Cause(StrEnum):
    """Cause of a finding, for programs that read it."""

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
    POD_REFUSED = "pod refused"
    NODE_LOST = "node lost"
    BAD_HOST = "bad host"
    NOT_STARTED = "container not started"
    RESTARTED = "restarted"
    FAILED = "failed"
    SILENT = "silent"
    DELETED = "being deleted"
    COMPLETED = "completed"
    RUNNING = "running"


@dataclass(frozen=True)
class Finding:
    """A fact about the job's present or past."""

    cause: Cause
    what: str
    """One or two sentences."""
    since: float | None
    """Begin of the condition, in seconds since the epoch. None: unknown."""
    evidence: tuple[str, ...] = ()
    """Messages of the components that report it."""
    next: tuple[str, ...] = ()
    """What to do, with commands. Empty: nothing."""


def submit_again(reader: Reader, job: JobStatus) -> str:
    """Return how to resubmit a job that failed, was cancelled or will not be admitted again."""
    name = job.ref.name
    if not job.declared:
        kind = job.ref.kind.lower()
        return f"{reader.kubectl} delete {kind} {name} -n {job.ref.namespace}, then submit it again"
    options = replacing(job_resource(name))
    return reader.run_up(*options) if reader.is_member else reader.up(*options)


def in_stack_file(reader: Reader, change: str) -> str:
    """Return the advice to change the stack file, such as `raise max_hours`, and to deploy it."""
    return f"{change} in the stack file of {reader.stack}, then {reader.run_up()}"


def after_change(reader: Reader, job: JobStatus, change: str) -> str:
    """Return the advice to change a job, such as `raise max_hours`, and to submit it with the change.

    `up` submits only the jobs of the stack file.
    """
    if job.declared:
        return in_stack_file(reader, change)
    return f"{change} in its file, then {submit_again(reader, job)}"


def raise_priority(reader: Reader, job: JobStatus) -> str:
    """Return the advice for a job that others precede in the queue."""
    if not job.declared:
        return "to run it earlier, cancel it and submit it again with a higher `priority`"
    return in_stack_file(reader, "to run it earlier, raise its `priority`")


_PROCESS_KILLED = Meaning(
    "its process was killed, by the kernel for lack of memory or by a user, and its pod stayed",
    "look at the host's memory, and read its log: {logs} --all{previous}",
)
_OF_OTHERS = replace(OTHER, what="its program exited with a code of its own")


def meaning(code: int, kind: Kind, *, recorded: bool = False) -> Meaning:
    """Return the meaning of the exit code of a host in a job of this kind; `recorded` as in `HostEnd`."""
    if recorded and code == SIGKILL:
        return _PROCESS_KILLED
    if kind is Kind.CONTAINER:
        return MEANINGS[code] if code in (SIGKILL, SIGSEGV) else _OF_OTHERS
    return MEANINGS.get(code, OTHER)


def advise(found: Meaning, snapshot: Snapshot, job: JobStatus, *, previous: bool = True) -> tuple[str, ...]:
    """Return what to do after a host of a job has ended, with commands that the reader can run.

    `previous`: another attempt has followed.
    """
    reader, word = snapshot.reader, snapshot.word_for(job)
    # `report` finds jobs of the stack file by name.
    losses = reader.command("report", job.ref.name) if job.declared else reader.command("status", word)
    about_job = {"logs": reader.command("logs", word), "report": losses}
    about_stack = {command: reader.command(command) for command in ("doctor", "preflight")}
    change = after_change(reader, job, found.change) if found.change else ""
    option = " --previous" if previous else ""
    return tuple(filter(None, (found.next.format(previous=option, **about_job, **about_stack), change)))
