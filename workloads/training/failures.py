"""Failures whose cause the trainer knows, and the exit code that tells it to the JobSet.

Owns the mapping from an exception to an ExitCode. Raising is up to whoever finds the fault, and what a
process does before it ends is up to `ending`.
"""

from typing import ClassVar

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
    """Loss or gradients stay not finite."""

    code = ExitCode.DIVERGED


class NoCheckpoint(TrainingStopped):
    """There are checkpoints and none of them can be used."""

    code = ExitCode.NO_CHECKPOINT


class ReplicasDiffer(TrainingStopped):
    """Replicas hold different weights, so some device computed wrongly; the next start goes back to a good state."""


class Preempted(TrainingStopped):
    """SIGTERM; what was trained so far is saved."""

    code = ExitCode.PREEMPTED


class BadHost(TrainingStopped):
    """A host lacks chips; another one may do."""

    code = ExitCode.BAD_HOST


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


def exit_code(error: BaseException) -> ExitCode:
    """The code that stands for `error`."""
    if isinstance(error, TrainingStopped):
        return error.code
    return ExitCode.OUT_OF_MEMORY if is_out_of_memory(error) else ExitCode.CRASH
