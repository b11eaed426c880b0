"""Failures whose cause the trainer knows, and the exit code that tells it to the JobSet.

Owns the mapping from an exception to an ExitCode. Raising is up to whoever finds the fault, and what a
process does before it ends is up to `ending`.
"""

from collections.abc import Collection
from typing import ClassVar, NamedTuple

from workloads.spec import ExitCode


class TrainingStopped(Exception):
    """Base of the stops with a known cause; the message is a sentence for the log."""

    code: ClassVar[ExitCode] = ExitCode.CRASH
    agreed: ClassVar[bool] = True
    """Whether every process stops for it at the same place, so that they can wait for each other."""


class InvalidSpec(TrainingStopped):
    """The specification or its data cannot work here; a restart would not help."""

    code = ExitCode.INVALID_SPEC


class Diverged(TrainingStopped):
    """Loss or gradients stay not finite or too large."""

    code = ExitCode.DIVERGED


class NoCheckpoint(TrainingStopped):
    """There are checkpoints and none of them can be used."""

    code = ExitCode.NO_CHECKPOINT


class ReplicasDiffer(TrainingStopped):
    """Replicas hold different weights, so some device computed wrongly; the next start goes back to a good state."""

    code = ExitCode.SILENT_DAMAGE


class WrongCollective(TrainingStopped):
    """Numbers that crossed slices are not what was sent, and nobody can say which host is at fault."""

    code = ExitCode.SILENT_DAMAGE


class SaveFailed(TrainingStopped):
    """A host cannot write its part of a checkpoint: to go on would mean to lose ever more."""

    agreed = False


class DataUnreadable(TrainingStopped):
    """Storage does not give this host the rows of its next step."""

    agreed = False


class Preempted(TrainingStopped):
    """SIGTERM; what was trained so far is saved."""

    code = ExitCode.PREEMPTED


class NoDevices(TrainingStopped):
    """JAX cannot open the host's devices; nobody can tell yet whether it is the chips or the software."""

    agreed = False


class Suspect(NamedTuple):
    """A host that is at fault, or in a slice of which one host is."""

    slice: int
    host: str


class BadHost(TrainingStopped):
    """A host lacks chips, or they err; another one may do."""

    code = ExitCode.BAD_HOST

    def __init__(self, message: str, suspects: Collection[Suspect]):
        super().__init__(message)
        self.suspects = frozenset(suspects)

    @property
    def slices(self) -> frozenset[int]:
        """Of the suspects."""
        return frozenset(suspect.slice for suspect in self.suspects)


class BadHostStays(BadHost):
    """A host is bad, and nothing keeps the next start from meeting it again."""

    code = ExitCode.CRASH


class PathTaken(TrainingStopped):
    """Another process writes below the storage path since this one, or its submission, was away."""


class HostMissing(TrainingStopped):
    """A host did not come, or did not answer, in time."""

    code = ExitCode.HANG
    agreed = False


class OutOfMemory(TrainingStopped):
    """The step does not fit the chips."""

    code = ExitCode.OUT_OF_MEMORY
    agreed = False


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device or its compiler ran out of memory."""
    # jaxlib has one exception type; the status name is the stable part of its text.
    return "RESOURCE_EXHAUSTED" in str(error)


def is_out_of_vmem(error: BaseException) -> bool:
    """Whether a program needs more of a core's fast memory than it has: another size of slice has no more of it."""
    return is_out_of_memory(error) and "memory space vmem" in str(error)


def is_peer_lost(error: BaseException) -> bool:
    """Whether a collective broke because another host is gone."""
    # Of CPU devices: Gloo raises where a collective of TPUs waits until JAX aborts the process. It names no other type.
    return "Gloo" in str(error)


def exit_code(error: BaseException) -> ExitCode:
    """The code that stands for `error`."""
    if isinstance(error, TrainingStopped):
        return error.code
    if is_peer_lost(error):
        return ExitCode.PEER_LOST
    return ExitCode.OUT_OF_MEMORY if is_out_of_memory(error) else ExitCode.CRASH
