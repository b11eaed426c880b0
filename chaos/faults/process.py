"""Faults that strike host processes: they die, hang, are told to leave."""

import signal
from collections.abc import Callable

from chaos.fault import Expected, Fault
from chaos.faults.pace import PACED
from chaos.field import BETWEEN_SAVES, Field

LEADER = "slice-0-0"

GONE = frozenset({"KILLED", "PEER_LOST"})
"""How a start ends in which a host is killed: who is killed leaves no word, and whom JAX aborts for it neither."""
HANGS_SOON = {"training": {"step_timeout_minutes": 0.25}, "grace_seconds": 15}
"""Settings of a job with a host that stands still: a restart waits as long as its grace for it to end."""


def told_of_kill(job: str, *hosts: str) -> str:
    """The event that names a killed host, as a regular expression.

    With the leader goes JAX's coordination service, and all others abort (134) in the same moment: the event is of
    whichever the Job's controller looks at first.
    """
    killed = rf"{job}-({'|'.join(hosts)})-\S+ failed with exit code 137"
    return rf"{killed}|{job}-slice-\S+ failed with exit code 134" if LEADER in hosts else killed


def _send(number: signal.Signals, *hosts: str) -> Callable[[Field, str], None]:
    """Sends a signal to hosts named `slice-S-H`, all at once."""

    def strike(field: Field, job: str) -> None:
        field.send(number, job, *hosts)

    return strike


def _killed(name: str, what: str, *hosts: str) -> Fault:
    strike = _send(signal.SIGKILL, *hosts)
    expected = Expected(endings=GONE, event=told_of_kill(name, *hosts))
    return Fault(name, what, strike, expected, at_step=BETWEEN_SAVES, anytime=True, edit=PACED)


def left(name: str) -> Expected:
    """What must hold of the job of that name whose hosts are told to leave: a save, a record, and nobody charged."""
    preempted = frozenset({"PREEMPTED"})
    return Expected(charged=0, endings=preempted, culprit=f"{name}-slice-", cause="SIGTERM", lost_steps=0)


FAULTS = (
    _killed("follower-killed", "a host that leads nothing is killed", "slice-1-1"),
    _killed("leader-killed", "the leading host is killed", LEADER),
    _killed("slice-killed", "all hosts of a slice are killed", "slice-1-0", "slice-1-1"),
    _killed("two-hosts-killed", "a host of each slice is killed at once", "slice-0-1", "slice-1-0"),
    Fault(
        "host-preempted",
        "a host is told to leave, as a spot machine is",
        _send(signal.SIGTERM, "slice-1-0"),
        left("host-preempted"),
        at_step=BETWEEN_SAVES,
        anytime=True,
        edit=PACED,
    ),
    Fault(
        "slice-preempted",
        "all hosts of a slice are told to leave",
        _send(signal.SIGTERM, "slice-1-0", "slice-1-1"),
        left("slice-preempted"),
        at_step=BETWEEN_SAVES,
        edit=PACED,
    ),
    Fault(
        "host-stopped",
        "a host stands still without an end",
        _send(signal.SIGSTOP, "slice-1-1"),
        # Before the trainer's own limit JAX may have seen that it is silent.
        Expected(
            endings=frozenset({"HANG", "PEER_LOST"}),
            culprit="host-stopped-slice-",
            cause="no sign of life from host-stopped-slice-1-1",
        ),
        at_step=BETWEEN_SAVES,
        anytime=True,
        job=HANGS_SOON,
        edit=PACED,
    ),
)
