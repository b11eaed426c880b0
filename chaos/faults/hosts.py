"""Faults of host processes: they die, hang, receive SIGTERM, start in a bad environment, or fail inside the trainer."""

import signal
import socket
from collections.abc import Callable, Mapping

from chaos.sabotage import Deed, Sabotage, add_sabotages, with_variables
from chaos.target import (
    BETWEEN_SAVES,
    NAMESPACE,
    SAVE_EVERY,
    STEPS,
    TAKE_STEP,
    Fault,
    Target,
    comes_with_the_job,
    recorded_before,
)
from chaos.verdict import UNDISTURBED, Expected
from sandbox.tpu_environment import JAX_COORDINATOR_PORT

LEADER = "slice-0-0"
"""Host that runs JAX's coordination service. Every step waits for its slowest host, including this one."""
GONE = frozenset({"KILLED", "PEER_LOST"})
"""Endings of an attempt in which a host is killed. Neither that host nor those that JAX aborts leave a record."""
HANGS_SOON = {"training": {"step_timeout_minutes": 0.25}, "grace_seconds": 15}
"""Settings of a job with a stopped host. A restart waits for the host for its grace period."""

_LATE_SECONDS = 30.0
_CREATED_SECONDS = 60
_RECORDED_SECONDS = 120
_STALE_SLICE_COUNT = "3"
_FAILING_HOST = "slice-1-1"
_STEP = 12
"""Step at which the trainer fails, after the first save and before the second."""
_READ_ROWS = "workloads.training.data:Batches.training"


def at_least(seconds: float) -> Sabotage:
    """Delay every step after the first save."""
    return Sabotage("delay", TAKE_STEP, (LEADER,), calls=(SAVE_EVERY + 1, STEPS), seconds=seconds)


PACED = add_sabotages(at_least(seconds=1.5))
"""Edit that makes a job slow enough for a fault at a given step, because a step is seen up to two seconds after it was
done. Even on the fastest machine the first save is complete when a fault strikes between the saves, and the remaining
steps take 18 s. A queue evicts within two or three seconds."""


def between_saves(
    name: str,
    what: str,
    strike: Callable[[Target, str], None],
    expected: Expected,
    *,
    anytime: bool = False,
    job: Mapping[str, object] | None = None,
) -> Fault:
    """Return a fault that strikes a paced job after its first save and before its second."""
    return Fault(name, what, strike, expected, at_step=BETWEEN_SAVES, anytime=anytime, job=job or {}, edit=PACED)


def event_of_kill(job: str, *hosts: str) -> str:
    """Regular expression of the event that names a killed host.

    JAX's coordination service ends with the leader, and all other hosts abort (134) in the same moment. The event then
    names whichever host the Job's controller looks at first.
    """
    killed = rf"{job}-({'|'.join(hosts)})-\S+ failed with exit code 137"
    return rf"{killed}|{job}-slice-\S+ failed with exit code 134" if LEADER in hosts else killed


def preempted(name: str) -> Expected:
    """Return the expected end if job `name` receives SIGTERM: it saves, leaves a record, and the restart is free."""
    endings = frozenset({"PREEMPTED"})
    return Expected(charged=0, endings=endings, culprit=f"{name}-slice-", cause="SIGTERM", lost_steps=0)


def _send(number: signal.Signals, *hosts: str) -> Callable[[Target, str], None]:
    """Send a signal to hosts named `slice-S-H`, all at once."""
    return lambda target, job: target.send(number, job, *hosts)


def _kill_fault(name: str, what: str, *hosts: str) -> Fault:
    expected = Expected(endings=GONE, event=event_of_kill(name, *hosts))
    return between_saves(name, what, _send(signal.SIGKILL, *hosts), expected, anytime=True)


HOSTS = (
    _kill_fault("follower-killed", "a host that leads nothing is killed", "slice-1-1"),
    _kill_fault("leader-killed", "the leading host is killed", LEADER),
    _kill_fault("slice-killed", "all hosts of a slice are killed", "slice-1-0", "slice-1-1"),
    _kill_fault("two-hosts-killed", "a host of each slice is killed at once", "slice-0-1", "slice-1-0"),
    between_saves(
        "killed-with-local-state",
        "a host is killed, and its node keeps the newest state",
        _send(signal.SIGKILL, "slice-1-1"),
        Expected(
            endings=GONE,
            event=event_of_kill("killed-with-local-state", "slice-1-1"),
            lost_steps=1,
            warning="RestoredLocally",
        ),
        job={"training": {"local_save_every_steps": 1}},
    ),
    between_saves(
        "host-preempted",
        "a host receives SIGTERM, as a spot machine does",
        _send(signal.SIGTERM, "slice-1-0"),
        preempted("host-preempted"),
        anytime=True,
    ),
    between_saves(
        "slice-preempted",
        "all hosts of a slice receive SIGTERM",
        _send(signal.SIGTERM, "slice-1-0", "slice-1-1"),
        preempted("slice-preempted"),
    ),
    between_saves(
        "host-stopped",
        "a host hangs without ending",
        _send(signal.SIGSTOP, "slice-1-1"),
        # JAX may notice the silent host before the trainer's own limit.
        Expected(
            endings=GONE | {"HANG"},
            culprit="host-stopped-slice-",
            cause="no sign of life from host-stopped-slice-1-1",
        ),
        anytime=True,
        job=HANGS_SOON,
    ),
)


def _take_port(target: Target, job: str) -> None:
    """Listen on the leader's port before the leader does, until it has reported that."""
    leader = f"{job}-{LEADER}-"

    def names() -> list[str]:
        return [name for pod in target.pods(job) if (name := pod["metadata"]["name"]).startswith(leader)]

    target.wait(f"the pod {leader}", lambda: bool(names()), _CREATED_SECONDS)
    with socket.create_server((target.site.pod_address(NAMESPACE, names()[0]), JAX_COORDINATOR_PORT)):
        target.wait(f"a failure record of {job}", lambda: bool(target.failures(job)), _RECORDED_SECONDS)


def _see_late(target: Target, job: str) -> None:
    def waited_seconds() -> float:
        (attempt,) = target.history(job).starts
        joined = attempt.last("start")
        return joined.time - joined.facts["began"] if joined else 0.0

    target.wait("a leader that waited for the late slice", lambda: waited_seconds() > _LATE_SECONDS, 1)


STARTS = (
    Fault(
        "slice-late",
        "the hosts of one slice begin half a minute after the others",
        _see_late,
        UNDISTURBED,
        at_step=1,
        edit=add_sabotages(
            Sabotage(
                "delay", "workloads.training.host:run_host", ("slice-1-0", "slice-1-1"), (1, 1), seconds=_LATE_SECONDS
            )
        ),
    ),
    Fault(
        "port-taken",
        "another process listens on the leader's port when it begins",
        _take_port,
        Expected(starts=1, culprit=f"port-taken-{LEADER}", cause=f"port {JAX_COORDINATOR_PORT}", lost_steps=0),
    ),
    Fault(
        "slice-count-stale",
        "the environment names more slices than the job has",
        comes_with_the_job,
        Expected(
            terminal="Failed",
            starts=0,
            charged=0,
            culprit=f"slice-count-stale-{LEADER}",
            cause=f"expected 2 slices (MEGASCALE_NUM_SLICES), got {_STALE_SLICE_COUNT}",
            lost_steps=0,
        ),
        edit=with_variables({"MEGASCALE_NUM_SLICES": _STALE_SLICE_COUNT}),
    ),
)


def _at(step: int, deed: Deed, function: str = _READ_ROWS) -> Callable[[dict[str, object]], None]:
    return add_sabotages(Sabotage(deed, function, (_FAILING_HOST,), (step, step)))


TRAINER = (
    Fault(
        "host-exception",
        "the program of one host fails, the others do not",
        comes_with_the_job,
        Expected(
            endings=frozenset({"CRASH"}), culprit=f"host-exception-{_FAILING_HOST}", cause="ValueError: no such row"
        ),
        at_step=recorded_before(_STEP),
        edit=_at(_STEP, "raise"),
    ),
    Fault(
        "host-slow",
        "one host needs a second more than the others for each step",
        comes_with_the_job,
        Expected(starts=1, charged=0, lost_steps=0, warning=f"host host-slow-{_FAILING_HOST}"),
        at_step=_STEP,
        job={"training": {"compare_hosts_every_steps": 8}},
        edit=add_sabotages(Sabotage("delay", _READ_ROWS, (_FAILING_HOST,), (9, 16), seconds=1.0)),
    ),
    Fault(
        "step-not-finite",
        "one host's weights are not finite for one step",
        comes_with_the_job,
        # Until that step the losses are the same bit for bit; later weights lack one update.
        Expected(
            starts=1,
            charged=0,
            lost_steps=0,
            skipped=frozenset({_STEP}),
            loss_tolerance=0.05,
            warning=f"step {_STEP}: loss nan",
        ),
        at_step=_STEP,
        edit=_at(_STEP, "not-finite", TAKE_STEP),
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
        at_step=recorded_before(_STEP),
        edit=_at(_STEP, "exhaust"),
    ),
)
