"""A finding about a job: a cause with its evidence, and what to do about it; and what exit codes mean."""

from dataclasses import dataclass
from enum import StrEnum

from cli.observed.snapshot import Job, Snapshot
from infra.job_state import Kind
from workloads.spec import ExitCode

_SIGKILL, _SIGSEGV = 137, 139


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
    """One thing that is the case, or was."""

    cause: Cause
    what: str
    """One or two sentences."""
    since: float | None
    """Seconds since the epoch; None: unknown."""
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


@dataclass(frozen=True)
class Meaning:
    """What an exit code means."""

    what: str
    next: str
    """What to do; `{job}` and `{stack}` stand for their names, `{options}` for how a command names the stack."""


_LOG = "read its log: multislice logs {job} {options} --all --previous"
_REPAIR = "fix the stack file and run `pulumi up`, which submits the job again"

MEANINGS: dict[int, Meaning] = {
    ExitCode.DONE: Meaning("it was done", "nothing to do"),
    ExitCode.CRASH: Meaning("its program crashed", _LOG),
    ExitCode.INVALID_SPEC: Meaning("the job's settings or data cannot work there, so no restart can help", _REPAIR),
    ExitCode.OUT_OF_MEMORY: Meaning(
        "the step does not fit the chips' memory, so no restart can help",
        "find a size that fits: multislice preflight -s {stack}",
    ),
    ExitCode.DIVERGED: Meaning(
        "loss or gradients stayed not finite or too large, so no restart can help",
        "look at the losses with `multislice report {job} {options}`, set a lower `job.optimizer.learning_rate` with"
        " `job.allow_changes: [optimizer.learning_rate]`, and run `pulumi up`",
    ),
    ExitCode.BAD_HOST: Meaning(
        "it failed the check of its chips; the nodes of its slice are marked and no job goes there",
        "look at the marked nodes: multislice doctor {options}",
    ),
    ExitCode.HANG: Meaning(
        "no step finished in time, a call's function did not end in time, or hosts were missing",
        "compare the hosts' stacks in their failure records: multislice logs {job} {options} --all --previous",
    ),
    ExitCode.NO_CHECKPOINT: Meaning(
        "none of the run's checkpoints can be used, and a restart would begin at step 0",
        "restore one from its copy in the bucket, or begin a new run with `job.existing_run: anew`",
    ),
    ExitCode.SILENT_DAMAGE: Meaning(
        "slices held different numbers where they must be the same; the restart goes on from a good checkpoint",
        "look for the slice that differs again: multislice doctor {options}",
    ),
    ExitCode.FUNCTION_RAISED: Meaning(
        "the function of the call raised, or what it returned cannot be sent, so no restart can help",
        "the caller gets the exception; it is also in the log of the host: multislice logs {job} {options} --all",
    ),
    ExitCode.PEER_LOST: Meaning("it lost another host, whose own end says why", _LOG),
    ExitCode.PREEMPTED: Meaning(
        "the cluster ended it, and it saved first; this does not count as a restart",
        "nothing to do: the job goes on from its checkpoint",
    ),
    _SIGKILL: Meaning(
        "it was killed: by the kernel for lack of memory, by hand, or with its machine",
        "look at the host's memory, and at its node: multislice doctor {options}",
    ),
    _SIGSEGV: Meaning("its program crashed in native code", _LOG),
}
"""Meanings by exit code, including those of common signals."""

_OTHER = Meaning("its program ended with a code that the trainer does not have", _LOG)
_OF_OTHERS = Meaning("its program ended with a code of its own", _LOG)


def meaning(code: int, kind: Kind) -> Meaning:
    """Return what the exit code of a host of such a job means."""
    if kind is Kind.CONTAINER:
        return MEANINGS[code] if code in (_SIGKILL, _SIGSEGV) else _OF_OTHERS
    return MEANINGS.get(code, _OTHER)
