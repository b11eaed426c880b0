"""What the exit codes of hosts mean to a person, and what to do about each."""

from dataclasses import dataclass

from cli.observed.kind import Kind
from workloads.spec import ExitCode

_SIGKILL, _SIGSEGV = 137, 139


@dataclass(frozen=True)
class Meaning:
    """Of an exit code."""

    what: str
    next: str
    """What to do; `{job}` and `{stack}` stand for their names, `{options}` for how a command names the stack."""


_LOG = "read its log: multislice logs {job} {options} --all --previous"
_REPAIR = "repair the stack file and run `pulumi up`, which submits the job anew"

MEANINGS: dict[int, Meaning] = {
    ExitCode.DONE: Meaning("it was done", "nothing is to be done"),
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
        "no step finished in time, a call's function did not end in time, or not all hosts came",
        "compare the hosts' stacks in their failure records: multislice logs {job} {options} --all --previous",
    ),
    ExitCode.NO_CHECKPOINT: Meaning(
        "none of the run's checkpoints can be used, and a restart would begin at step 0",
        "restore one from its copy in the bucket, or begin anew with `job.existing_run: anew`",
    ),
    ExitCode.SILENT_DAMAGE: Meaning(
        "slices held different numbers where they must be the same; the restart goes on from a good checkpoint",
        "look for the slice that differs again: multislice doctor {options}",
    ),
    ExitCode.FUNCTION_RAISED: Meaning(
        "the function of the call raised, or what it returned cannot travel, so no restart can help",
        "whoever called it is told the exception; its host has it as well: multislice logs {job} {options} --all",
    ),
    ExitCode.PEER_LOST: Meaning("it lost another host, whose own end says why", _LOG),
    ExitCode.PREEMPTED: Meaning(
        "the cluster told it to end, and it saved before it did; this does not count as a restart",
        "nothing is to be done: the job goes on from its checkpoint",
    ),
    _SIGKILL: Meaning(
        "it was killed without a word: by the kernel for the host's memory, by somebody, or with its machine",
        "look at the host's memory, and at its node: multislice doctor {options}",
    ),
    _SIGSEGV: Meaning("its program crashed in native code", _LOG),
}
"""By exit code, and those of signals that are often seen."""

_OTHER = Meaning("its program ended with a code that the trainer does not have", _LOG)
_OF_OTHERS = Meaning("its program ended so, and knows why", _LOG)


def meaning(code: int, kind: Kind) -> Meaning:
    """What an exit code of a host of such a job means."""
    if kind is Kind.CONTAINER:
        return MEANINGS[code] if code in (_SIGKILL, _SIGSEGV) else _OF_OTHERS
    return MEANINGS.get(code, _OTHER)
