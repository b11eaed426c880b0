"""The trainer's failures with a known cause, in addition to those of every program (`multislice_run.failures`)."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from multislice_run.failures import Preempted as Preempted
from multislice_run.failures import Stopped as TrainingStopped
from multislice_run.failures import exit_code as exit_code
from multislice_run.failures import is_out_of_memory
from multislice_run.failures import is_peer_lost as is_peer_lost
from workloads.spec import ExitCode


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


def is_out_of_vmem(error: BaseException) -> bool:
    """Return whether a program needs more than a core's fast memory. A larger slice does not help, because it has the
    same memory per core."""
    return is_out_of_memory(error) and "memory space vmem" in str(error)
