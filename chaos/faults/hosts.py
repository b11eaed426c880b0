"""Faults of host processes: they die, hang, receive SIGTERM, begin badly, or fail inside the trainer."""

import signal
import socket
from collections.abc import Callable

from chaos.sabotage import Deed, Sabotage, sabotaged, with_variables
from chaos.target import BETWEEN_SAVES, NAMESPACE, SAVE_EVERY, STEPS, TAKE_STEP, Fault, Target, comes_with_the_job
from chaos.verdict import UNDISTURBED, Expected
from sandbox.tpu_environment import JAX_COORDINATOR_PORT

_SLOW_HOST = "slice-0-0"
"""All wait for the slowest in every step."""


def at_least(seconds: float) -> Sabotage:
    """Of every step beyond the first save."""
    return Sabotage("delay", TAKE_STEP, (_SLOW_HOST,), calls=(SAVE_EVERY + 1, STEPS), seconds=seconds)


PACED = sabotaged(at_least(seconds=1.5))
"""For `Fault.edit`: on the fastest machine too, the first save is complete when a strike comes between the saves, and
the job has steps left for 18 s. A queue evicts within two or three."""


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


def _send(number: signal.Signals, *hosts: str) -> Callable[[Target, str], None]:
    """Sends a signal to hosts named `slice-S-H`, all at once."""

    def strike(target: Target, job: str) -> None:
        target.send(number, job, *hosts)

    return strike


def _killed(name: str, what: str, *hosts: str) -> Fault:
    strike = _send(signal.SIGKILL, *hosts)
    expected = Expected(endings=GONE, event=told_of_kill(name, *hosts))
    return Fault(name, what, strike, expected, at_step=BETWEEN_SAVES, anytime=True, edit=PACED)


def left(name: str) -> Expected:
    """What must hold of the job of that name whose hosts are told to leave: a save, a record, and nobody charged."""
    preempted = frozenset({"PREEMPTED"})
    return Expected(charged=0, endings=preempted, culprit=f"{name}-slice-", cause="SIGTERM", lost_steps=0)


HOSTS = (
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


_LATE_SECONDS = 30.0
_CREATED_SECONDS = 60
_TOLD_SECONDS = 120
_SLICES_OF_ANOTHER_TIME = "3"


def _take_port(target: Target, job: str) -> None:
    """Listens where the leader is about to, until it has said so."""
    leader = f"{job}-slice-0-0-"

    def names() -> list[str]:
        return [name for pod in target.pods(job) if (name := pod["metadata"]["name"]).startswith(leader)]

    target.wait(f"the pod {leader}", lambda: bool(names()), _CREATED_SECONDS)
    with socket.create_server((target.site.pod_address(NAMESPACE, names()[0]), JAX_COORDINATOR_PORT)):
        target.wait(f"a failure record of {job}", lambda: bool(target.failures(job)), _TOLD_SECONDS)


def _see_late(target: Target, job: str) -> None:
    target.wait("a leader that waited for the late slice", lambda: _waited(target, job) > _LATE_SECONDS, 1)


def _waited(target: Target, job: str) -> float:
    """From the leader's begin until all had joined."""
    (start,) = target.history(job).starts
    joined = start.last("start")
    return joined.time - joined.facts["began"] if joined else 0.0


STARTS = (
    Fault(
        "slice-late",
        "the hosts of one slice begin half a minute after the others",
        _see_late,
        UNDISTURBED,
        at_step=1,
        edit=sabotaged(
            Sabotage(
                "delay",
                "workloads.training.host:run_host",
                ("slice-1-0", "slice-1-1"),
                (1, 1),
                seconds=_LATE_SECONDS,
            )
        ),
    ),
    Fault(
        "port-taken",
        "something else listens at the leader's port when it begins",
        _take_port,
        Expected(
            starts=1, charged=1, culprit="port-taken-slice-0-0", cause=f"port {JAX_COORDINATOR_PORT}", lost_steps=0
        ),
    ),
    Fault(
        "slice-count-stale",
        "the environment tells of more slices than the job has",
        comes_with_the_job,
        Expected(
            terminal="Failed",
            starts=0,
            charged=0,
            culprit="slice-count-stale-slice-0-0",
            cause=f"expected 2 slices (MEGASCALE_NUM_SLICES), got {_SLICES_OF_ANOTHER_TIME}",
            lost_steps=0,
        ),
        edit=with_variables({"MEGASCALE_NUM_SLICES": _SLICES_OF_ANOTHER_TIME}),
    ),
)


_FAILING_HOST = "slice-1-1"
_STEP = 12
"""Beyond the first save, and before the second."""
_READ_ROWS = "workloads.training.data:Batches.training"


def _at(step: int, deed: Deed, function: str = _READ_ROWS) -> Sabotage:
    return Sabotage(deed, function, (_FAILING_HOST,), (step, step))


TRAINER = (
    Fault(
        "host-exception",
        "the program of one host fails, the others are well",
        comes_with_the_job,
        Expected(
            endings=frozenset({"CRASH"}), culprit=f"host-exception-{_FAILING_HOST}", cause="ValueError: no such row"
        ),
        at_step=_STEP - 1,
        edit=sabotaged(_at(_STEP, "raise")),
    ),
    Fault(
        "host-slow",
        "one host takes a second longer than the others for each step",
        comes_with_the_job,
        Expected(starts=1, charged=0, lost_steps=0, warning=f"host host-slow-{_FAILING_HOST}"),
        at_step=_STEP,
        job={"training": {"compare_hosts_every_steps": 8}},
        edit=sabotaged(Sabotage("delay", _READ_ROWS, (_FAILING_HOST,), (9, 16), seconds=1.0)),
    ),
    Fault(
        "step-not-finite",
        "one host's weights are not finite for one step",
        comes_with_the_job,
        # Up to that step the losses are the same bit for bit; later weights lack one update.
        Expected(
            starts=1,
            charged=0,
            lost_steps=0,
            skipped=frozenset({_STEP}),
            loss_tolerance=0.05,
            warning=f"step {_STEP}: loss nan",
        ),
        at_step=_STEP,
        edit=sabotaged(_at(_STEP, "not-finite", TAKE_STEP)),
    ),
    Fault(
        "out-of-memory",
        "a device of one host has no memory for a step",
        comes_with_the_job,
        Expected(
            terminal="Failed",
            starts=1,
            charged=0,
            endings=frozenset({"OUT_OF_MEMORY"}),
            culprit=f"out-of-memory-{_FAILING_HOST}",
            cause="the step does not fit the memory of a device",
        ),
        at_step=_STEP - 1,
        edit=sabotaged(_at(_STEP, "exhaust")),
    ),
)
