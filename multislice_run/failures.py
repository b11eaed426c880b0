"""Failures with a known cause, and the exit code that reports each to the JobSet.

`ending` has what a process does before it exits.
"""

from typing import ClassVar

from multislice_run.exit_codes import ExitCode


class Stopped(Exception):
    """Base of the stops with a known cause. The message is a sentence for the log."""

    code: ClassVar[ExitCode] = ExitCode.CRASH
    agreed: ClassVar[bool] = True
    """Whether every process stops at the same place, so that they can wait for each other."""


class Preempted(Stopped):
    """The job got SIGTERM. Its state is saved."""

    code = ExitCode.PREEMPTED


class HostsHang(Stopped):
    """All hosts of the job stand still, because each waits for others."""

    code = ExitCode.HANG
    agreed = False


_OF_XLA = ("JaxRuntimeError", "XlaRuntimeError")
"""Names of the exception of XLA's runtime, in newer and older versions of JAX."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether a device or its compiler ran out of memory.

    Storage reports a full disk or a used-up quota with the same status name, but not as an error of XLA's runtime.
    """
    # The class is known by its name, because a program may run without JAX. It is the only one of the runtime, and the
    # status name is the stable part of its text. JAX's coordination service, which is called by gRPC, raises it too.
    of_xla = any(kind.__name__ in _OF_XLA for kind in type(error).__mro__)
    return of_xla and "RESOURCE_EXHAUSTED" in str(error) and "GRPC error" not in str(error)


def is_peer_lost(error: BaseException) -> bool:
    """Return whether a collective failed because another host is gone."""
    # Only Gloo, for CPU devices, raises this. A collective of TPUs waits until JAX aborts the process. The exception
    # has no specific type.
    return "Gloo" in str(error)


def exit_code(error: BaseException) -> int:
    """Return the exit code of `error`."""
    if isinstance(error, Stopped):
        return error.code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else ExitCode.CRASH if error.code else ExitCode.DONE
    if is_peer_lost(error):
        return ExitCode.PEER_LOST
    return ExitCode.OUT_OF_MEMORY if is_out_of_memory(error) else ExitCode.CRASH
