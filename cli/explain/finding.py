"""Findings about a job, each with its cause, its evidence and what to do, and the meanings of exit codes."""

from dataclasses import dataclass
from enum import StrEnum

from cli.observed.snapshot import Job, Snapshot
from infra.commands import Reader, replacing
from infra.job_state import Kind
from infra.names import job_resource
from workloads.spec import ExitCode

_SIGKILL, _SIGSEGV = 137, 139


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


def submit_again(reader: Reader, job: Job) -> str:
    """Return how to resubmit a job that failed, was cancelled or will not be admitted again."""
    name = job.place.name
    if not job.declared:
        return f"{reader.kubectl} delete jobset {name} -n {job.place.namespace}, then submit it again"
    options = replacing(job_resource(name))
    return reader.run_up(*options) if reader.is_member else reader.up(*options)


def after_change(reader: Reader, job: Job, change: str) -> str:
    """Return the advice to change a job, such as `raise max_hours`, and to submit it with the change.

    `up` submits only the jobs of the stack file.
    """
    if job.declared:
        return f"{change} in the stack file of {reader.stack}, then {reader.run_up()}"
    return f"{change} in its file, then {submit_again(reader, job)}"


@dataclass(frozen=True)
class Meaning:
    """Meaning of an exit code."""

    what: str
    next: str
    """What to do. `{previous}` is the option for logs of the attempt before the newest one if it is meant, and every
    other word in braces is that command of `multislice` as the reader can run it: `{doctor}` about the stack, `{logs}`
    about the job."""
    change: str = ""
    """What to change of the job after that, and to submit it again. Empty: nothing."""


_LOG = "read its log: {logs} --all{previous}"

MEANINGS: dict[int, Meaning] = {
    ExitCode.DONE: Meaning("it completed", "nothing to do"),
    ExitCode.CRASH: Meaning("its program crashed", _LOG),
    ExitCode.INVALID_SPEC: Meaning("the job's settings or data are invalid, so a restart cannot help", "", "fix them"),
    ExitCode.OUT_OF_MEMORY: Meaning(
        "the step does not fit in the memory of the chips, so a restart cannot help",
        "find a size that fits: {preflight}",
    ),
    ExitCode.DIVERGED: Meaning(
        "loss or gradients stayed too large or not finite, so a restart cannot help",
        "look at the losses: {report}",
        "set a lower `optimizer.learning_rate` with `allow_changes: [optimizer.learning_rate]`",
    ),
    ExitCode.BAD_HOST: Meaning(
        "it failed the check of its chips; the nodes of its slice are marked, and no job is placed on them",
        "look at the marked nodes: {doctor}",
    ),
    ExitCode.HANG: Meaning(
        "no step finished in time, a call's function did not end in time, or hosts were missing",
        "compare the hosts' stacks in their failure records: {logs} --all{previous}",
    ),
    ExitCode.NO_CHECKPOINT: Meaning(
        "none of the run's checkpoints can be used, and a restart would begin at step 0",
        "restore one from its copy in the bucket, or start a new run with `job.existing_run: anew`",
    ),
    ExitCode.SILENT_DAMAGE: Meaning(
        "slices had different values that must be equal; the restart continues from a good checkpoint",
        "find out whether the same slice differs again: {doctor}",
    ),
    ExitCode.FUNCTION_RAISED: Meaning(
        "the function raised an exception or returned a value that cannot be sent, so a restart cannot help",
        "the caller gets the exception; it is also in the log of the host: {logs} --all",
    ),
    ExitCode.RESTARTS_USED_UP: Meaning(
        "its processes failed more often than max_restarts allows",
        "find out how its attempts ended: {report}",
    ),
    ExitCode.PEER_LOST: Meaning(
        "that host was killed or lost with its machine, and left no record",
        "look at the nodes: {doctor}",
    ),
    ExitCode.PREEMPTED: Meaning(
        "the cluster stopped it after it had saved; this does not count towards max_restarts",
        "nothing to do: the job continues from its checkpoint",
    ),
    _SIGKILL: Meaning(
        "it was killed by the kernel for lack of memory, by a user, or with its machine",
        "look at the host's memory, and at its node: {doctor}",
    ),
    _SIGSEGV: Meaning("its program crashed in native code", _LOG),
}
"""Meanings by exit code, including those of common signals."""

_PROCESS_KILLED = Meaning(
    "its process was killed, by the kernel for lack of memory or by a user, and its pod stayed",
    "look at the host's memory, and read its log: {logs} --all{previous}",
)
_OTHER = Meaning("its program exited with a code that the trainer does not use", _LOG)
_OF_OTHERS = Meaning("its program exited with a code of its own", _LOG)


def meaning(code: int, kind: Kind, *, recorded: bool = False) -> Meaning:
    """Return the meaning of the exit code of a host in a job of this kind; `recorded` as in `HostEnd`."""
    if recorded and code == _SIGKILL:
        return _PROCESS_KILLED
    if kind is Kind.CONTAINER:
        return MEANINGS[code] if code in (_SIGKILL, _SIGSEGV) else _OF_OTHERS
    return MEANINGS.get(code, _OTHER)


def advise(found: Meaning, snapshot: Snapshot, job: Job, *, previous: bool = True) -> tuple[str, ...]:
    """Return what to do after a host of a job has ended, with commands that the reader can run.

    `previous`: another attempt has followed.
    """
    reader, word = snapshot.reader, snapshot.word_for(job)
    # `report` finds jobs of the stack file by name.
    losses = reader.command("report", job.place.name) if job.declared else reader.command("status", word)
    about_job = {"logs": reader.command("logs", word), "report": losses}
    about_stack = {command: reader.command(command) for command in ("doctor", "preflight")}
    change = after_change(reader, job, found.change) if found.change else ""
    option = " --previous" if previous else ""
    return tuple(filter(None, (found.next.format(previous=option, **about_job, **about_stack), change)))
