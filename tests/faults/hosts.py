"""Faults of host processes: they die, hang, receive SIGTERM, start in a bad environment, or fail inside the trainer."""

import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from sandbox.tpu_environment import JAX_COORDINATOR_PORT
from tests.chain.stack import NAMESPACE, SAVE_EVERY, STEPS, Chain
from tests.faults.fault import (
    BETWEEN_SAVES,
    GONE,
    LEADER,
    PREEMPTED,
    TAKE_STEP,
    UNDISTURBED,
    Expected,
    Fault,
    recorded_before,
    trainer_killed,
)
from tests.faults.sabotage import Deed, Sabotage, add_sabotages, with_variables
from tests.faults.trial import failures

HANGS_SOON = {"training": {"step_timeout_minutes": 0.25}, "grace_seconds": 15}
"""Settings of a job with a stopped host. A restart waits for the host for its grace period."""

_LATE_SECONDS = 30.0
_CREATED_SECONDS = 60
_RECORDED_SECONDS = 120
_STALE_SLICE_COUNT = "3"
_FAILING_HOST = "slice-1-1"
_FROZEN_SECONDS = 8.0
_STEP = 12
"""Step at which the trainer fails, after the first save and before the second."""
_READ_ROWS = "workloads.training.data:Batches.training"


def at_least(seconds: float) -> Sabotage:
    """Delay every step after the first save."""
    return Sabotage("delay", TAKE_STEP, (LEADER,), calls=(SAVE_EVERY + 1, STEPS), seconds=seconds)


def between_saves(name: str, what: str, expected: Expected, strike: Callable[[Chain, str], None], **more: Any) -> Fault:
    """Return a fault that strikes a job after its first save and before its second.

    A step is seen up to two seconds after it was done. The job is slow enough that, even on the fastest machine, the
    first save is complete when the fault strikes, and the remaining steps take 18 s. A queue evicts within two or three
    seconds.
    """
    paced = add_sabotages(at_least(seconds=1.5))
    return Fault(name, what, expected, strike, at_step=BETWEEN_SAVES, edit=paced, **more)


def _send(number: signal.Signals, *hosts: str) -> Callable[[Chain, str], None]:
    """Send a signal to the trainers of hosts named `slice-S-H`, all at once."""
    return lambda chain, job: chain.send(number, job, *hosts)


def _send_to_pods(number: signal.Signals, *hosts: str) -> Callable[[Chain, str], None]:
    """Send a signal to the pods of hosts named `slice-S-H`, all at once."""
    return lambda chain, job: chain.send_to_pods(number, job, *hosts)


def _kill(name: str, what: str, *hosts: str) -> Fault:
    return between_saves(name, what, trainer_killed(hosts[0]), _send(signal.SIGKILL, *hosts), anytime=True)


def _lose(name: str, what: str, *hosts: str) -> Fault:
    expected = Expected(endings=GONE, killed=hosts)
    return between_saves(name, what, expected, _send_to_pods(signal.SIGKILL, *hosts))


def _kill_twice(chain: Chain, job: str) -> None:
    """Kill the trainer of a host, and the next one before its first step."""
    chain.send(signal.SIGKILL, job, _FAILING_HOST)
    chain.wait("the next attempt", lambda: len(chain.history(job).starts) == 2, _RECORDED_SECONDS)
    chain.send(signal.SIGKILL, job, _FAILING_HOST)


def _freeze(chain: Chain, job: str) -> None:
    """Stop the trainers of a slice for less time than anything waits."""
    hosts = ("slice-1-0", "slice-1-1")
    chain.send(signal.SIGSTOP, job, *hosts)
    time.sleep(_FROZEN_SECONDS)
    chain.send(signal.SIGCONT, job, *hosts)


HOSTS = (
    _kill("follower-killed", "the trainer of a host that leads nothing is killed", "slice-1-1"),
    _kill("leader-killed", "the trainer of the leading host is killed", LEADER),
    _kill("slice-killed", "the trainers of all hosts of a slice are killed", "slice-1-0", "slice-1-1"),
    _kill("two-hosts-killed", "the trainer of a host of each slice is killed at once", "slice-0-1", "slice-1-0"),
    between_saves(
        "killed-twice",
        "the trainer of a host is killed, and again while the next attempt starts",
        trainer_killed(_FAILING_HOST, starts=3, charged=2),
        _kill_twice,
    ),
    _lose("pod-lost", "the pod of a host is killed", "slice-1-1"),
    _lose("leader-pod-lost", "the pod of the leading host is killed", LEADER),
    _lose("slice-lost", "the pods of all hosts of a slice are killed", "slice-1-0", "slice-1-1"),
    between_saves("slice-frozen", "the trainers of a slice stand still for a while", UNDISTURBED, _freeze),
    between_saves(
        "killed-with-local-state",
        "the trainer of a host is killed, and the pods keep the newest state",
        trainer_killed("slice-1-1", lost_steps=1, warning="restored_locally"),
        _send(signal.SIGKILL, "slice-1-1"),
        job={"training": {"local_save_every_steps": 1}},
    ),
    between_saves(
        "host-preempted",
        "a host receives SIGTERM, as a spot machine does",
        PREEMPTED,
        _send_to_pods(signal.SIGTERM, "slice-1-0"),
        anytime=True,
    ),
    between_saves(
        "slice-preempted",
        "all hosts of a slice receive SIGTERM",
        PREEMPTED,
        _send_to_pods(signal.SIGTERM, "slice-1-0", "slice-1-1"),
    ),
    between_saves(
        "host-stopped",
        "a host hangs without ending",
        # JAX may notice the silent host before the trainer's own limit.
        Expected(endings=GONE | {"HANG"}, culprit="slice-", cause="no sign of life from {job}-slice-1-1"),
        _send(signal.SIGSTOP, "slice-1-1"),
        anytime=True,
        job=HANGS_SOON,
    ),
)


def _take_port(chain: Chain, job: str) -> None:
    """Listen on the leader's port before the leader does, until it has reported that."""
    leader = f"{job}-{LEADER}-"

    def names() -> list[str]:
        return [name for pod in chain.pods(job) if (name := pod["metadata"]["name"]).startswith(leader)]

    chain.wait(f"the pod {leader}", lambda: bool(names()), _CREATED_SECONDS)
    with socket.create_server((chain.site.pod_address(NAMESPACE, names()[0]), JAX_COORDINATOR_PORT)):
        chain.wait(f"a failure record of {job}", lambda: bool(failures(chain, job)), _RECORDED_SECONDS)


def _see_late(chain: Chain, job: str) -> None:
    def waited_seconds() -> float:
        (attempt,) = chain.history(job).starts
        joined = attempt.last("start")
        return joined.time - joined.facts["began"] if joined else 0.0

    chain.wait("a leader that waited for the late slice", lambda: waited_seconds() > _LATE_SECONDS, 1)


def _end_the_restore(chain: Chain, job: str) -> None:
    """Kill a host, and send SIGTERM to another one while the next attempt restores."""
    chain.send(signal.SIGKILL, job, "slice-1-1")
    chain.wait("an attempt that restores", lambda: len(chain.history(job).starts) == 2, _RECORDED_SECONDS)
    chain.send_to_pods(signal.SIGTERM, job, "slice-1-0")
    chain.wait("its end", lambda: chain.world(job).number == 2, _RESTORE_SECONDS / 2)


_RESTORE_SECONDS = 60.0
"""Time of the restore, and also that after which a host that does not end on SIGTERM is killed."""
_RESTORES = "workloads.training.checkpoint:Checkpoints.restore"
_BEGINS = "workloads.training.host:run_host"
STARTS = (
    Fault(
        "slice-late",
        "the hosts of one slice begin half a minute after the others",
        UNDISTURBED,
        _see_late,
        at_step=1,
        edit=add_sabotages(Sabotage("delay", _BEGINS, ("slice-1-0", "slice-1-1"), (1, 1), seconds=_LATE_SECONDS)),
    ),
    Fault(
        "sigterm-while-restoring",
        "a host is killed, and another one receives SIGTERM while the next attempt restores",
        Expected(starts=3, endings=GONE),
        _end_the_restore,
        at_step=BETWEEN_SAVES,
        edit=add_sabotages(
            at_least(seconds=1.5), Sabotage("delay", _RESTORES, (LEADER,), (1, 1), start=1, seconds=_RESTORE_SECONDS)
        ),
    ),
    Fault(
        "port-taken",
        "another process listens on the leader's port when it begins",
        Expected(starts=1, culprit=LEADER, cause=f"port {JAX_COORDINATOR_PORT}", lost_steps=0),
        _take_port,
    ),
    Fault(
        "slice-count-stale",
        "the environment names more slices than the job has",
        Expected(
            terminal="Failed",
            starts=0,
            charged=0,
            culprit=LEADER,
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
        Expected(endings=frozenset({"CRASH"}), culprit=_FAILING_HOST, cause="ValueError: no such row"),
        at_step=recorded_before(_STEP),
        edit=_at(_STEP, "raise"),
    ),
    Fault(
        "host-slow",
        "one host needs a second more than the others for each step",
        Expected(starts=1, charged=0, lost_steps=0, warning=f"host {{job}}-{_FAILING_HOST}"),
        at_step=_STEP,
        job={"training": {"compare_hosts_every_steps": 8}},
        edit=add_sabotages(Sabotage("delay", _READ_ROWS, (_FAILING_HOST,), (9, 16), seconds=1.0)),
    ),
    Fault(
        "step-not-finite",
        "one host's weights are not finite for one step",
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
        Expected(
            terminal="Failed",
            starts=1,
            charged=0,
            endings=frozenset({"OUT_OF_MEMORY"}),
            culprit=_FAILING_HOST,
            cause="the step does not fit the memory of a device",
        ),
        at_step=recorded_before(_STEP),
        edit=_at(_STEP, "exhaust"),
    ),
)
