"""The exit codes of a host, and what each means: one row per code in `MEANINGS`.

From the rows follow the decision of the supervisor (`multislice_run.supervisor`), the failure policy of the JobSet
(`infra.stack.jobset`), the words of `explain` and `status`, the causes of lost time (`workloads.report.goodput`), and
docs/reference/exit-codes.md.
"""

import signal
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from functools import partial

from multislice_run.records.events import Cause


class Reaction(StrEnum):
    """What JobSet does when a pod ends. Where it cannot restart one slice, it restarts all of them."""

    COMPLETE = "marks the slice as done"
    FAIL = "fails the job at once"
    RESTART_SLICE = "restarts the slice"
    RESTART_JOB = "restarts the job"


@dataclass(frozen=True)
class Meaning:
    """Meaning of an exit code. The defaults are those of a code that only a crash has."""

    what: str
    """Why the host ended, as a clause."""
    next: str
    """What to do. `{previous}` is the option for logs of the attempt before the newest one if it is meant, and every
    other word in braces is that command of `multislice` as the reader can run it: `{doctor}` about the stack, `{logs}`
    about the job."""
    change: str = ""
    """What to change of the job after that, and to submit it again. Empty: nothing."""
    reaction: Reaction = Reaction.RESTART_SLICE
    """What JobSet does if a pod ends with it."""
    stays: bool = True
    """Whether the pod stays: its supervisor starts the process again."""
    counts: bool = True
    """Whether the restart counts against `max_restarts`. It does not if the job did not cause it."""
    follows: bool = False
    """Whether it follows from the exit of another process, and so never is the cause."""
    last: Cause = Cause.LOST
    """What the time between the last event of an attempt and this end was spent on."""


_final = partial(Meaning, reaction=Reaction.FAIL, stays=False, counts=False)
_LOG = "read its log: {logs} --all{previous}"


class ExitCode(IntEnum):
    """Exit codes of a host process. `MEANINGS` has what follows from each."""

    DONE = 0
    CRASH = 1
    INVALID_SPEC = 20
    OUT_OF_MEMORY = 21
    DIVERGED = 22
    BAD_HOST = 23
    HANG = 24
    NO_CHECKPOINT = 25
    SILENT_DAMAGE = 26
    FUNCTION_RAISED = 27
    RESTARTS_USED_UP = 28
    PEER_LOST = 134  # SIGABRT, with which JAX aborts a host that lost another one
    PREEMPTED = 143  # SIGTERM

    @property
    def meaning(self) -> Meaning:
        """The row of this code."""
        return MEANINGS[self]


SIGKILL, SIGSEGV = 128 + signal.SIGKILL, 128 + signal.SIGSEGV

MEANINGS = {
    ExitCode.DONE: Meaning(
        "it completed", "nothing to do", reaction=Reaction.COMPLETE, stays=False, counts=False, last=Cause.OTHER
    ),
    ExitCode.CRASH: Meaning("its program crashed", _LOG),
    ExitCode.INVALID_SPEC: _final("the job's settings or data are invalid, so a restart cannot help", "", "fix them"),
    ExitCode.OUT_OF_MEMORY: _final(
        "the step does not fit in the memory of the chips, so a restart cannot help",
        "find a size that fits: {preflight}",
    ),
    ExitCode.DIVERGED: _final(
        "loss or gradients stayed too large or not finite, so a restart cannot help",
        "look at the losses: {report}",
        "set a lower `optimizer.learning_rate` with `allow_changes: [optimizer.learning_rate]`",
    ),
    ExitCode.BAD_HOST: Meaning(
        "it failed the check of its chips; the nodes of its slice are marked, and no job is placed on them",
        "look at the marked nodes: {doctor}",
        # Every host of the job ends with it.
        reaction=Reaction.RESTART_JOB,
        stays=False,
        counts=False,
    ),
    ExitCode.HANG: Meaning(
        "no step or call ended in time, hosts were missing, or each waited for others",
        "compare the hosts' stacks in their failure records: {logs} --all{previous}",
        # All pods that are ready wait for the same missing one.
        reaction=Reaction.RESTART_JOB,
        last=Cause.HUNG,
    ),
    ExitCode.NO_CHECKPOINT: _final(
        "none of the run's checkpoints can be used, and a restart would begin at step 0",
        "restore one from its copy in the bucket, or start a new run with `job.existing_run: new`",
    ),
    ExitCode.SILENT_DAMAGE: Meaning(
        "slices had different values that must be equal; the restart continues from a good checkpoint",
        "find out whether the same slice differs again: {doctor}",
    ),
    ExitCode.FUNCTION_RAISED: _final(
        "the function raised an exception or returned a value that cannot be sent, so a restart cannot help",
        "the caller gets the exception; it is also in the log of the host: {logs} --all",
    ),
    ExitCode.RESTARTS_USED_UP: _final(
        "its processes failed more often than `max_restarts` allows",
        "find out how its attempts ended: {report}",
        follows=True,
    ),
    ExitCode.PEER_LOST: Meaning(
        "its peer was killed or lost with its machine, and left no record", "look at the nodes: {doctor}", follows=True
    ),
    ExitCode.PREEMPTED: Meaning(
        "the cluster stopped the job with SIGTERM; this does not count towards `max_restarts`",
        "nothing to do: the job continues from its checkpoint",
        counts=False,
        last=Cause.SAVE,
    ),
    SIGKILL: Meaning(
        "it was killed by the kernel for lack of memory, by a user, or with its machine",
        "look at the host's memory, and at its node: {doctor}",
    ),
    SIGSEGV: Meaning("its program crashed in native code", _LOG),
}
"""Meanings by exit code, including those of common signals, which no program chooses. For other codes: `OTHER`."""

OTHER = Meaning("its program exited with a code that the trainer does not use", _LOG)


def codes(reaction: Reaction, *, counts: bool) -> tuple[ExitCode, ...]:
    """Return the codes with this reaction of JobSet."""
    return tuple(code for code in ExitCode if (code.meaning.reaction, code.meaning.counts) == (reaction, counts))


FATAL_CODES = codes(Reaction.FAIL, counts=False)
"""Exit codes after which a restart cannot help. The job fails at once."""

UNCOUNTED_CODES = (*codes(Reaction.RESTART_JOB, counts=False), *codes(Reaction.RESTART_SLICE, counts=False))
"""Exit codes after which a restart does not count against `max_restarts`, because the job did not cause them."""

ENDS_THE_POD = tuple(code for code in ExitCode if not code.meaning.stays)
"""Exit codes of a process after which its pod ends too: nothing is left to do, or the pod has to leave its node."""

CONSEQUENCES = tuple(code for code in ExitCode if code.meaning.follows)
"""Exit codes that follow from the exit of another process."""


def cause_order(code: int, at: float) -> tuple[bool, float]:
    """Return a sort key of the exits of hosts: the exit that caused the others comes first.

    The exit of a host that lost another one is never the cause, whenever it ended.
    """
    return code in CONSEQUENCES, at


def exit_name(code: int) -> str:
    """Return the name of an exit code in records, such as `HANG`; its digits if it has none."""
    return ExitCode(code).name if code in set(ExitCode) else str(code)
