"""One job for each cause, and what is said of it."""

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from cli.deployed import JobRef
from cli.explain.explain import command, explain
from cli.explain.finding import Cause
from cli.observed.files import Failure, Files
from cli.observed.snapshot import Event, JobStatus, Queue, Snapshot
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
    findings,
    only,
    pod,
    said,
    training,
    workload,
)
from tests.cli.shown import read_output
from tests.cli.standing import running, stack, waiting
from workloads.spec import ExitCode


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
_RESERVED = replace(workload(said("QuotaReserved", True), admitted=True), checks=(("queued", "Pending", "ETA"),))
_NO_NODE = replace(PODS[3], phase="Pending", node="", waits_for="0/4 nodes are available")
_HELD_UP = replace(PODS[0], phase="Pending", held_up="ImagePullBackOff: no such image")
_EXISTS = _event("JobSet", "tiny", 'jobs.batch "tiny-slice-1" already exists')
_FOLLOWS = _event("Job", "tiny-slice-0", "follower pod node selector not found")
_BAD_JOB, _BAD_POD = _event("JobSet", "tiny", 'bad value: "x"'), _event("Job", "tiny-slice-1", "bad value")
_WITH_HEAD, _COMPLETE = (pod("head-0-0"), *PODS), Files(training(step=9, steps=9))
_SUBMIT, _SUBMIT_BY_HAND = (
    "submit it: multislice up -s dev --replace '**::job-tiny'|",
    "kubectl delete jobset tiny -n r",
)
ONLY_FINDINGS: list[tuple[str, JobStatus, Cause, str]] = [
    ("a missing job", JobStatus(REF, declared=True), Cause.MISSING, _SUBMIT),
    ("a missing job that was submitted by hand", JobStatus(REF), Cause.MISSING, _SUBMIT_BY_HAND),
    ("a paused job", _job(workload=_PAUSED), Cause.PAUSED, "|queue research.tiny is stopped|"),
    ("how to resume it", _job(workload=_PAUSED), Cause.PAUSED, "`paused` to false in the stack file of dev"),
    ("no queue", _job(ref=_NO_QUEUE, workload=None, suspended=True), Cause.NO_WORKLOAD, "names no queue"),
    ("not looked at", _job(workload=None, suspended=True), Cause.NO_WORKLOAD, "|existing queues: research|"),
    ("larger than the quota", _job(workload=_refused(TOO_LARGE)), Cause.QUOTA_TOO_SMALL, f"|{TOO_LARGE}|"),
    ("no slice is free", _job(workload=_refused(NO_ROOM)), Cause.NO_SLICE_FREE, f"|{NO_ROOM}|"),
    ("an unknown refusal", _job(workload=_refused("unseen"), position=1), Cause.NOT_ADMITTED, "|unseen|"),
    ("a rest after an eviction", _job(workload=_BACKING_OFF), Cause.BACKING_OFF, "in 60 s"),
    ("slices yet to come", _job(workload=_RESERVED), Cause.CAPACITY_PENDING, "|queued: Pending: ETA|"),
    ("a host without a node", _job(pods=(*PODS[:3], _NO_NODE)), Cause.NO_NODE, "1 host of the job has no node.|"),
    ("why it has none", _job(pods=(*PODS[:3], _NO_NODE)), Cause.NO_NODE, "|slice-1-1: 0/4 nodes are available|"),
    ("a container that is held up", _job(pods=(_HELD_UP, *PODS[1:])), Cause.NOT_STARTED, "er: ImagePullBackOff.|"),
    (
        "refused pods",
        _job(events=(_FOLLOWS, _EXISTS, _BAD_JOB)),
        Cause.CREATION_REFUSED,
        '|JobSet tiny: bad value: "x"|',
    ),
    ("a head is no host", _job(heads=1, pods=_WITH_HEAD[:4], events=(_BAD_POD,)), Cause.CREATION_REFUSED, "1 host of"),
    ("the node of a head", _job(heads=1, pods=_WITH_HEAD), Cause.RUNNING, "All hosts run"),
    ("a job that compiles", _job(pods=PODS), Cause.RUNNING, "All hosts run"),
    ("a complete job", _job(terminal="Completed", files=_COMPLETE), Cause.COMPLETED, "complete, after 9 steps.|"),
]


@pytest.mark.parametrize(
    ("job", "cause", "words"), [row[1:] for row in ONLY_FINDINGS], ids=[row[0] for row in ONLY_FINDINGS]
)
def test_a_job_in_one_state_has_one_finding(job: JobStatus, cause: Cause, words: str) -> None:
    """`words` are a part of what is said: `|` separates it from each line of evidence and of advice."""
    found = only(job)
    assert found.cause is cause
    assert words in "|".join((found.what, *found.evidence, *found.next, ""))


def test_only_unfinished_jobs_on_the_same_slices_are_listed_as_holders() -> None:
    finished = workload(said("QuotaReserved", True), said("Finished", True), admitted=True, name="finished")
    elsewhere = replace(
        workload(said("QuotaReserved", True), admitted=True, name="elsewhere"), held_chips={"v5e-4x4": 16}
    )
    found = only(replace(JOB, workload=_refused(NO_QUOTA)), others=(finished, elsewhere))
    assert (found.cause, found.evidence) == (Cause.QUOTA_TAKEN, (NO_QUOTA,))


def test_a_refusal_without_a_time_dates_from_when_the_job_was_queued() -> None:
    waiting = _refused(NO_QUOTA, since=0.0)
    assert only(replace(JOB, workload=waiting)).since == waiting.created


@pytest.mark.parametrize(("reason", "words"), [("Stopped", "it is on hold"), ("FlavorNotFound", "it is not ready")])
def test_a_queue_that_admits_nothing_comes_before_what_it_says_of_the_job(reason: str, words: str) -> None:
    job = replace(JOB, workload=_refused("is inactive", "Inadmissible"))
    queue = Queue("research", "research", (), 1, 0, (said("Active", False, reason, "Can't admit new workloads"),))
    (found,) = explain(Snapshot("dev", "-s dev", "dev", NOW, queues=(queue,), jobs=(job,)), job)
    assert (found.cause, words in found.what) == (Cause.QUEUE_CLOSED, True)


def test_a_queue_that_a_used_up_budget_stopped_is_reported_with_how_to_raise_the_budget() -> None:
    job = replace(JOB, workload=_refused("is inactive", "Inadmissible"))
    stopped, used = said("Active", False, "Stopped", "Can't admit new workloads"), "$12.00 of $10.00 used"
    queue = Queue("research", "research", (), 1, 0, (stopped,), over_budget=used)
    (found,) = explain(Snapshot("dev", "-s dev", "dev", NOW, queues=(queue,), jobs=(job,)), job)
    assert (found.cause, found.evidence) == (Cause.QUEUE_CLOSED, (used,))
    assert "then run: multislice enforce-budget -s dev" in found.next[0]
    (found,) = explain(Snapshot("dev", "--namespace research", "dev", NOW, queues=(queue,), jobs=(job,)), job)
    assert "ask the owner of stack dev to run: multislice enforce-budget -s dev" in found.next[0]


def test_an_eviction_that_is_over_is_reported() -> None:
    again = replace(
        workload(
            said("Evicted", False, "QuotaReserved", "Previously: exceeded the PodsReady timeout"),
            said("QuotaReserved", True),
            said("Admitted", True),
            admitted=True,
        ),
        evictions={"PodsReadyTimeout": 2},
    )
    found = findings(replace(JOB, workload=again, pods=PODS))[0]
    assert (found.cause, found.next) == (Cause.EVICTED, ())
    assert found.what.endswith("its hosts did not all become ready in time. It has been admitted again since.")
    assert found.evidence == ("exceeded the PodsReady timeout", "PodsReadyTimeout: 2 times so far")


@pytest.mark.parametrize(
    ("reason", "words", "advice"),
    [
        ("DeactivatedDueToMaximumExecutionTimeExceeded", "has used up its max_hours", "raise max_hours in"),
        ("DeactivatedDueToRequeuingLimitExceeded", "as often as scheduling.requeueing.limit allows", "--replace"),
        ("Deactivated", "until its Workload is activated", "kubectl patch workload jobset-tiny -n research"),
    ],
)
def test_a_job_that_is_never_admitted_again_is_reported_why(reason: str, words: str, advice: str) -> None:
    held = replace(workload(said("Evicted", True, reason, "The workload is deactivated")), active=False)
    found = only(replace(JOB, workload=held))
    assert (found.cause, words in found.what) == (Cause.DEACTIVATED, True)
    assert advice in found.next[0]
    assert advice not in only(replace(JOB, kind=Kind.FUNCTION, workload=held)).next[0]


_ENDED = Failure(9_100.0, "slice-0-0", ExitCode.INVALID_SPEC, "no such data", 0, 0)
_TO_BE_CHANGED = (
    *(
        replace(JOB, terminal="Failed", files=Files(failures=(replace(_ENDED, code=code),)))
        for code in (ExitCode.INVALID_SPEC, ExitCode.DIVERGED, ExitCode.CRASH)
    ),
    replace(
        JOB,
        workload=replace(
            workload(said("Evicted", True, "DeactivatedDueToMaximumExecutionTimeExceeded", "deactivated")), active=False
        ),
    ),
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
    advice = explain(Snapshot("dev", options, "dev", NOW, nodes=NODES, jobs=(job,)), job)[0].next
    for line in advice:
        if not declared:
            assert not re.search("stack file|multislice up", line)
        elif "multislice up" in line and options != "-s dev":
            assert "ask the owner of stack dev" in line


LONG = (
    "0/5 nodes are available: 1 Insufficient google.com/tpu, 1 node(s) didn't match Pod's node affinity/selector, 1"
    " node(s) had untolerated taint(s), 2 node(s) were unschedulable. no new claims to deallocate, preemption: 0/5"
    " nodes are available: 1 No preemption victims found for incoming pod, 4 Preemption is not helpful for scheduling."
)


def test_a_node_that_is_cordoned_or_not_ready_is_named_when_the_scheduler_says_so() -> None:
    pending = replace(PODS[3], phase="Pending", node="", waits_for=LONG)
    cordoned = replace(NODES[2], cordoned=True)
    away = replace(NODES[3], ready=False, not_ready="Kubelet stopped posting node status.")
    found = only(replace(JOB, pods=(*PODS[:3], pending)), nodes=(*NODES[:2], cordoned, away))
    assert found.what == (
        f"1 host of the job has no node: node {cordoned.name} is cordoned, and node {away.name} is not ready."
    )
    assert found.evidence[0] == (
        "slice-1-1: of 5 nodes 1 without free chips, 1 not of the job's slices, 1 not ready, or with another taint,"
        " 2 cordoned"
    )
    assert found.next[1] == f"once they work again: kubectl uncordon {cordoned.name}"
    assert not any("zone" in each for each in found.next)


def test_a_member_who_sees_no_nodes_is_told_that_some_are_cordoned() -> None:
    pending = replace(PODS[3], phase="Pending", node="", waits_for=LONG)
    found = only(replace(JOB, pods=(*PODS[:3], pending)), nodes=())
    assert (found.what, len(found.next)) == ("1 host of the job has no node: nodes are cordoned.", 1)


def test_a_marked_slice_is_named_when_hosts_find_no_other() -> None:
    pending = replace(PODS[3], phase="Pending", node="", waits_for="untolerated taint")
    nodes = (*NODES[:3], replace(NODES[3], bad_host="wrong product", taints=("tpu-multislice.dev/bad-host",)))
    found = only(replace(JOB, pods=(*PODS[:3], pending)), nodes=nodes)
    assert found.cause is Cause.BAD_HOST
    assert f"{NODES[3].name} is marked as a bad host: wrong product" in found.evidence


@pytest.mark.parametrize("gone", [False, True])
def test_a_host_on_a_node_that_does_not_answer_is_named(gone: bool) -> None:
    away = () if gone else (replace(NODES[3], ready=False, not_ready="Kubelet stopped posting node status."),)
    found = findings(replace(JOB, pods=PODS), nodes=(*NODES[:3], *away))[0]
    assert (found.cause, "slice-1-1" in found.what) == (Cause.NODE_LOST, True)


def test_a_waiting_job_is_explained_with_a_command_on_one_line(tmp_path: Path) -> None:
    shown = Console(file=io.StringIO(), width=20, highlight=False)
    with playing(running()) as server:
        server.collections[WORKLOADS] = [waiting("tiny")]
        assert command(stack(server, tmp_path), None, shown, json=False) == 0
    lines = [line.rstrip() for line in read_output(shown).splitlines()]
    assert lines[0] == "tiny  queued"
    assert lines[2].startswith("The job requests 0 chips, and 16 of them are in use. It is number 1 in line.  since ")
    assert (
        "  -> to run it earlier, raise its `priority` in the stack file of dev, then run `multislice up -s dev`"
        in lines
    )


def test_a_workload_that_a_member_may_not_read_is_not_missing(tmp_path: Path) -> None:
    shown = Console(file=io.StringIO(), width=20, highlight=False)
    with playing(running()) as server:
        server.collections[JOBSETS][0]["spec"]["suspend"] = True
        server.refused[WORKLOADS] = 403
        assert command(stack(server, tmp_path), None, shown, json=False) == 0
    assert "no Workload can be read" in read_output(shown)
