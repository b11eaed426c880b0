"""Failures with a known cause, and the exit code that reports each to the JobSet.

`ending` has what a process does before it exits.
"""

from collections.abc import Collection, Sequence
from typing import ClassVar, NamedTuple

from workloads.spec import ExitCode


class TrainingStopped(Exception):
    """Base of the stops with a known cause. The message is a sentence for the log."""

    code: ClassVar[ExitCode] = ExitCode.CRASH
    agreed: ClassVar[bool] = True
    """Whether every process stops at the same place, so that they can wait for each other."""


class InvalidSpec(TrainingStopped):
    """The specification or its data cannot work here. A restart would not help."""

    code = ExitCode.INVALID_SPEC


class Diverged(TrainingStopped):
    """Loss or gradients stay infinite, NaN or too large."""

    code = ExitCode.DIVERGED


class NoCheckpoint(TrainingStopped):
    """There are checkpoints, but none can be used."""

    code = ExitCode.NO_CHECKPOINT


class NewerCheckpoint(NoCheckpoint):
    """The newest checkpoint was written by a newer image, in a format that this one cannot read."""


class ReplicasDiffer(TrainingStopped):
    """Replicas hold different weights, so a device computed wrongly. The next attempt restores a good state."""

    code = ExitCode.SILENT_DAMAGE


class WrongCollective(TrainingStopped):
    """Numbers sent between slices arrived changed, and the faulty host is unknown."""

    code = ExitCode.SILENT_DAMAGE


class SaveFailed(TrainingStopped):
    """A host cannot write its part of a checkpoint. Continuing would lose ever more work."""

    agreed = False


class DataUnreadable(TrainingStopped):
    """This host cannot read the rows of its next step from storage."""

    agreed = False


class Preempted(TrainingStopped):
    """The job got SIGTERM. Its state is saved."""

    code = ExitCode.PREEMPTED


class NoDevices(TrainingStopped):
    """JAX cannot open the host's devices. The cause may be the chips or the software."""

    agreed = False


class Suspect(NamedTuple):
    """A host that is bad, or whose slice has a bad host."""

    slice: int
    host: str


class BadHost(TrainingStopped):
    """A host has too few chips, or they compute wrongly. Another host may work."""

    code = ExitCode.BAD_HOST

    def __init__(self, message: str, suspects: Collection[Suspect]):
        super().__init__(message)
        self.suspects = frozenset(suspects)

    @property
    def slices(self) -> frozenset[int]:
        return frozenset(suspect.slice for suspect in self.suspects)


class BadHostStays(BadHost):
    """A host is bad, and the next attempt may get it again."""

    code = ExitCode.CRASH


class PathTaken(TrainingStopped):
    """Another process took over the storage path while this process or its submission was paused."""


class HostMissing(TrainingStopped):
    """A host did not join or answer in time."""

    code = ExitCode.HANG
    agreed = False


class OutOfMemory(TrainingStopped):
    """The step does not fit the chips."""

    code = ExitCode.OUT_OF_MEMORY
    agreed = False


def first_line(error: BaseException) -> str:
    """Return the type of `error` and the first line of its text."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


def first_of(faults: Sequence[str]) -> str:
    """Return the first of `faults`, and how many others there are."""
    return faults[0] if len(faults) == 1 else f"{faults[0]} and {len(faults) - 1} more"


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether a device or its compiler ran out of memory."""
    # jaxlib has only one exception type. The status name is the stable part of its text.
    return "RESOURCE_EXHAUSTED" in str(error)


def is_out_of_vmem(error: BaseException) -> bool:
    """Return whether a program needs more than a core's fast memory. A larger slice does not help, because it has the
    same memory per core."""
    return is_out_of_memory(error) and "memory space vmem" in str(error)


def is_peer_lost(error: BaseException) -> bool:
    """Return whether a collective failed because another host is gone."""
    # Only Gloo, for CPU devices, raises this. A collective of TPUs waits until JAX aborts the process. The exception
    # has no specific type.
    return "Gloo" in str(error)


def exit_code(error: BaseException) -> ExitCode:
    """Return the exit code of `error`."""
    if isinstance(error, TrainingStopped):
        return error.code
    if is_peer_lost(error):
        return ExitCode.PEER_LOST
    return ExitCode.OUT_OF_MEMORY if is_out_of_memory(error) else ExitCode.CRASH
