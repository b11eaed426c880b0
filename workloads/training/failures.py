"""Failures whose cause the trainer knows, and the exit code that tells it to the JobSet.

Owns the mapping from an exception to an ExitCode. Raising is up to whoever finds the fault.
"""

from workloads.spec import ExitCode


class TrainingStopped(Exception):
    """Base of the stops with a known cause; the message is a sentence for the log."""

    code = ExitCode.CRASH


class InvalidSpec(TrainingStopped):
    """The specification or its data cannot work here; a restart would not help."""

    code = ExitCode.INVALID_SPEC


class Diverged(TrainingStopped):
    """Loss or gradients are no longer finite."""

    code = ExitCode.DIVERGED


class NoCheckpoint(TrainingStopped):
    """There are checkpoints and none of them can be used."""

    code = ExitCode.NO_CHECKPOINT


class ReplicasDiffer(TrainingStopped):
    """Replicas hold different weights, so some device computed wrongly; the next start goes back to a good state."""


class Preempted(TrainingStopped):
    """SIGTERM; what was trained so far is saved."""

    code = ExitCode.PREEMPTED


def exit_code(error: BaseException) -> ExitCode:
    """The code that stands for `error`."""
    if isinstance(error, TrainingStopped):
        return error.code
    # jaxlib has one exception type; the status name is the stable part of its text.
    if "RESOURCE_EXHAUSTED" in str(error):
        return ExitCode.OUT_OF_MEMORY
    return ExitCode.CRASH
