"""Faults that strike host processes: they die, hang, are told to leave."""

import os
import signal
from collections.abc import Callable

from chaos.fault import Expected, Fault
from chaos.field import Field

_AFTER_A_SAVE = 10
"""Beyond the first save, and before the second."""


def _send(number: signal.Signals, *hosts: str) -> Callable[[Field, str], None]:
    """Sends a signal to hosts named `slice-S-H`, all at once."""

    def strike(field: Field, job: str) -> None:
        for pid in [field.pid(f"{job}-{host}") for host in hosts]:
            os.kill(pid, number)

    return strike


def _killed(name: str, what: str, *hosts: str) -> Fault:
    strike = _send(signal.SIGKILL, *hosts)
    # Nobody who is killed leaves a word, and whom JAX aborts for it neither.
    expected = Expected(endings=frozenset({"KILLED", "PEER_LOST", "CRASH", "HANG"}))
    return Fault(name, what, strike, expected, at_step=_AFTER_A_SAVE)


FAULTS = (
    _killed("follower-killed", "a host that leads nothing is killed", "slice-1-1"),
    _killed("leader-killed", "the leading host is killed", "slice-0-0"),
    _killed("slice-killed", "all hosts of a slice are killed", "slice-1-0", "slice-1-1"),
    _killed("two-hosts-killed", "a host of each slice is killed at once", "slice-0-1", "slice-1-0"),
    Fault(
        "host-preempted",
        "a host is told to leave, as a spot machine is",
        _send(signal.SIGTERM, "slice-1-0"),
        Expected(charged=0, endings=frozenset({"PREEMPTED"}), lost_steps=0),
        at_step=_AFTER_A_SAVE,
    ),
    Fault(
        "host-stopped",
        "a host stands still without an end",
        _send(signal.SIGSTOP, "slice-1-1"),
        Expected(endings=frozenset({"HANG"})),
        at_step=_AFTER_A_SAVE,
        job={"training": {"step_timeout_minutes": 0.25}},
    ),
)
