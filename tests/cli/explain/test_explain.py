"""One job for each cause, and what is said of it."""

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli.deployed import JobRef
from cli.explain.explain import command
from cli.observed.files import Failure, Files
from cli.observed.snapshot import Event, JobStatus, Queue
from infra.cluster.job_state import Kind, Workload
from tests.cli.api_objects import JOBSETS, WORKLOADS
from tests.cli.api_server import playing
from tests.cli.explain.cases import (
    JOB,
    NO_QUOTA,
    NO_ROOM,
    NODES,
    NOW,
    PODS,
    REF,
    TOO_LARGE,
    explained,
    findings,
    pod,
    said,
    training,
    workload,
)
from tests.cli.shown import check, read_output
from tests.cli.standing import running, stack
from workloads.spec import ExitCode

LONG = (
    "0/5 nodes are available: 1 Insufficient google.com/tpu, 1 node(s) didn't match Pod's node affinity/selector, 1"
    " node(s) had untolerated taint(s), 2 node(s) were unschedulable. no new claims to deallocate, preemption: 0/5"
    " nodes are available: 1 No preemption victims found for incoming pod, 4 Preemption is not helpful for scheduling."
)


def _refused(message: str, reason: str = "Pending", since: float = 9_000.0) -> Workload:
    return workload(said("QuotaReserved", False, reason, message, since))


def _job(**changes: Any) -> JobStatus:
    return replace(JOB, **changes)


def _event(kind: str, name: str, message: str) -> Event:
    return Event(9_500.0, kind, name, "FailedCreate" if kind == "Job" else "JobCreationFailed", message)


_STOPPED = (
    said("Evicted", True, "LocalQueueStopped"),
    said("QuotaReserved", False, "", "queue research.tiny is stopped"),
)
_PAUSED = replace(workload(*_STOPPED), paused=True)
_NO_QUEUE = JobRef("tiny", "research", "")
_BACKING_OFF = replace(workload(), requeue_at=NOW + 60)
_HOLDS = replace(workload(admitted=True, name="other"), held_chips={"v6e-2x4": 8})
_RESERVED = replace(workload(said("QuotaReserved", True), admitted=True), checks=(("queued", "Pending", "ETA"),))
_NO_NODE = replace(PODS[3], phase="Pending", node="", waits_for="0/4 nodes are available")
_HELD_UP = replace(PODS[0], phase="Pending", held_up="ImagePullBackOff: no such image")
_EXISTS = _event("JobSet", "tiny", 'jobs.batch "tiny-slice-1" already exists')
_FOLLOWS = _event("Job", "tiny-slice-0", "follower pod node selector not found")
_BAD_JOB, _BAD_POD = _event("JobSet", "tiny", 'bad value: "x"'), _event("Job", "tiny-slice-1", "bad value")
_WITH_HEAD, _COMPLETE = (pod("head-0-0"), *PODS), Files(training(step=9, steps=9))
_EVICTED = said("Evicted", False, "QuotaReserved", "Previously: exceeded the PodsReady timeout")
_AGAIN = replace(
    workload(_EVICTED, said("QuotaReserved", True), said("Admitted", True), admitted=True),
    evictions={"PodsReadyTimeout": 2},
)
_FINISHED = workload(said("QuotaReserved", True), said("Finished", True), admitted=True, name="finished")
_ELSEWHERE = replace(workload(said("QuotaReserved", True), admitted=True, name="elsewhere"), held_chips={"v5e-4x4": 16})
_INACTIVE = _job(workload=_refused("is inactive", "Inadmissible"))
_WAITS_FOR_NODE = _job(pods=(*PODS[:3], replace(_NO_NODE, waits_for=LONG)))
_MARKED = replace(NODES[3], bad_host="wrong product", taints=("tpu-multislice.dev/bad-host",))
_AWAY = replace(NODES[3], ready=False, not_ready="Kubelet stopped posting node status.")


def _closed(reason: str, over_budget: str = "") -> dict[str, Any]:
    """The job's queue, which admits nothing."""
    conditions = (said("Active", False, reason, "Can't admit new workloads"),)
    return {"queues": (Queue("research", "research", (), 1, 0, conditions, over_budget),)}


def _deactivated(reason: str) -> JobStatus:
    return _job(workload=replace(workload(said("Evicted", True, reason, "it is deactivated")), active=False))


_USED_UP = _closed("Stopped", over_budget="$12.00 of $10.00 used")
_TOO_LONG = _deactivated("DeactivatedDueToMaximumExecutionTimeExceeded")
CASES: dict[str, tuple[JobStatus, dict[str, Any]]] = {
    "a missing job": (JobStatus(REF, declared=True), {}),
    "a missing job that was submitted by hand": (JobStatus(REF), {}),
    "a paused job": (_job(workload=_PAUSED), {}),
    "no queue": (_job(ref=_NO_QUEUE, workload=None, suspended=True), {}),
    "not looked at by Kueue": (_job(workload=None, suspended=True), {}),
    "larger than the quota": (_job(workload=_refused(TOO_LARGE)), {}),
    "no slice is free": (_job(workload=_refused(NO_ROOM)), {}),
    "an unknown refusal": (_job(workload=_refused("unseen"), position=1), {}),
    "neither a finished job nor one on other slices holds chips": (
        _job(workload=_refused(NO_QUOTA)),
        {"workloads": (_FINISHED, _ELSEWHERE)},
    ),
    "two jobs hold more than Kueue's last message says": (
        _job(workload=_refused(NO_QUOTA)),
        {"workloads": [replace(_HOLDS, name=name, owner=name) for name in ("a", "b")]},
    ),
    "a refusal without a time dates from when the job was queued": (_job(workload=_refused(NO_QUOTA, since=0.0)), {}),
    "a queue on hold comes before what it says of the job": (_INACTIVE, _closed("Stopped")),
    "a queue that is not ready": (_INACTIVE, _closed("FlavorNotFound")),
    "a queue that a used up budget stopped": (_INACTIVE, _USED_UP),
    "the same for a member": (_INACTIVE, _USED_UP | {"options": "--namespace research"}),
    "a rest after an eviction": (_job(workload=_BACKING_OFF), {}),
    "an eviction that is over": (_job(workload=_AGAIN, pods=PODS), {}),
    "out of time": (_TOO_LONG, {}),
    "a call that is out of time": (replace(_TOO_LONG, kind=Kind.FUNCTION), {}),
    "queued again too often": (_deactivated("DeactivatedDueToRequeuingLimitExceeded"), {}),
    "deactivated by hand": (_deactivated("Deactivated"), {}),
    "slices yet to come": (_job(workload=_RESERVED), {}),
    "a host without a node": (_job(pods=(*PODS[:3], _NO_NODE)), {}),
    "a node that is cordoned and one that is not ready": (
        _WAITS_FOR_NODE,
        {"nodes": (*NODES[:2], replace(NODES[2], cordoned=True), _AWAY)},
    ),
    "nodes that a member does not see are cordoned": (_WAITS_FOR_NODE, {"nodes": ()}),
    "a marked slice when hosts find no other": (_WAITS_FOR_NODE, {"nodes": (*NODES[:3], _MARKED)}),
    "a host on a node that does not answer": (_job(pods=PODS), {"nodes": (*NODES[:3], _AWAY)}),
    "a host on a node that is gone": (_job(pods=PODS), {"nodes": NODES[:3]}),
    "a container that is held up": (_job(pods=(_HELD_UP, *PODS[1:])), {}),
    "refused pods": (_job(events=(_FOLLOWS, _EXISTS, _BAD_JOB)), {}),
    "a head is no host": (_job(heads=1, pods=_WITH_HEAD[:4], events=(_BAD_POD,)), {}),
    "the node of a head": (_job(heads=1, pods=_WITH_HEAD), {}),
    "a job that compiles": (_job(pods=PODS), {}),
    "a complete job": (_job(terminal="Completed", files=_COMPLETE), {}),
}


def test_what_is_said_of_a_job_is_what_the_golden_file_says() -> None:
    check("explained", explained(CASES))


_ENDED = Failure(9_100.0, "slice-0-0", ExitCode.INVALID_SPEC, "no such data", 0, 0)
_TO_BE_CHANGED = (
    *(
        replace(JOB, terminal="Failed", files=Files(failures=(replace(_ENDED, code=code),)))
        for code in (ExitCode.INVALID_SPEC, ExitCode.DIVERGED, ExitCode.CRASH)
    ),
    _TOO_LONG,
    replace(JOB, events=(Event(NOW, "Job", "tiny-slice-0", "FailedCreate", "pods are forbidden"),)),
    replace(JOB, pods=(replace(PODS[0], phase="Pending", held_up="ImagePullBackOff: no such image"), *PODS[1:])),
    replace(JOB, workload=_refused(TOO_LARGE)),
)


@pytest.mark.parametrize("job", _TO_BE_CHANGED)
@pytest.mark.parametrize("options", ["-s dev", "--namespace research"])
@pytest.mark.parametrize("declared", [True, False])
def test_a_job_that_must_be_changed_is_submitted_again_by_those_who_can(
    job: JobStatus, options: str, declared: bool
) -> None:
    job = replace(job, declared=declared)
    advice = findings(job, options=options)[0].next
    for line in advice:
        if not declared:
            assert not re.search("stack file|multislice up", line)
        elif "multislice up" in line and options != "-s dev":
            assert "ask the owner of stack dev" in line


def test_a_workload_that_a_member_may_not_read_is_not_missing(tmp_path: Path) -> None:
    shown = Console(file=io.StringIO(), width=20, highlight=False)
    with playing(running()) as server:
        server.collections[JOBSETS][0]["spec"]["suspend"] = True
        server.refused[WORKLOADS] = 403
        assert command(stack(server, tmp_path), None, shown, json=False) == 0
    assert "no Workload can be read" in read_output(shown)
