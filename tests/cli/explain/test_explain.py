"""One job for each cause, and what is said of it."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from cli.deployed import JobPlace
from cli.explain.explain import command, explain
from cli.explain.finding import Cause
from cli.observed.files import Failure, Files
from cli.observed.snapshot import Event, Job, Queue, Snapshot
from infra.cluster.job_state import Kind
from tests.cli.api_objects import WORKLOADS
from tests.cli.api_server import playing
from tests.cli.explain.cases import (
    JOB,
    NO_QUOTA,
    NO_ROOM,
    NODES,
    NOW,
    PLACE,
    PODS,
    PREEMPTED,
    TOO_LARGE,
    findings,
    only,
    pod,
    said,
    workload,
)
from tests.cli.shown import read_output
from tests.cli.standing import running, stack, waiting
from workloads.spec import ExitCode


def test_a_missing_job_is_submitted_again() -> None:
    found = only(Job(PLACE, declared=True))
    assert (found.cause, found.next) == (Cause.MISSING, ("submit it: multislice up -s dev --replace '**::job-tiny'",))


def test_a_job_that_somebody_submitted_by_hand_is_submitted_by_hand_again() -> None:
    (line,) = only(Job(PLACE)).next
    assert "kubectl delete jobset tiny -n research" in line


def test_a_paused_job_is_reported_only_with_how_to_resume_it() -> None:
    evicted = workload(
        said("Evicted", True, "LocalQueueStopped", "The LocalQueue is stopped"),
        said("QuotaReserved", False, "Inadmissible", "LocalQueue research.tiny is stopped"),
    )
    found = only(replace(JOB, workload=replace(evicted, paused=True)))
    assert (found.cause, found.evidence) == (Cause.PAUSED, ("LocalQueue research.tiny is stopped",))
    assert "`paused` to false in the stack file of dev" in found.next[0]


def test_a_job_that_names_no_queue_waits_for_ever() -> None:
    found = only(replace(JOB, place=JobPlace("tiny", "research", ""), workload=None, suspended=True))
    assert (found.cause, "names no queue" in found.what) == (Cause.NO_WORKLOAD, True)


def test_a_job_that_kueue_has_not_looked_at_is_reported_with_the_queues_there_are() -> None:
    found = only(replace(JOB, workload=None, suspended=True))
    assert (found.cause, found.evidence[-1]) == (Cause.NO_WORKLOAD, "existing queues: research")


def test_who_has_the_chips_that_a_job_waits_for_is_named() -> None:
    waiting = workload(said("QuotaReserved", False, "Pending", NO_QUOTA))
    other = workload(said("QuotaReserved", True), admitted=True, name="other")
    found = only(replace(JOB, workload=waiting, position=2), others=(other,))
    assert found.cause is Cause.QUOTA_TAKEN
    assert found.what == "The job requests 16 chips, and 8 of them are in use. It is number 2 in line."
    assert found.evidence == (NO_QUOTA, "research/other has 16 chips, priority 500")
    assert found.next == (
        "to run it earlier, raise its `priority` in the stack file of dev, then run `multislice up -s dev`",
    )
    assert found.since == 9_000.0


def test_only_unfinished_jobs_on_the_same_slices_are_listed_as_holders() -> None:
    waiting = workload(said("QuotaReserved", False, "Pending", NO_QUOTA))
    finished = workload(said("QuotaReserved", True), said("Finished", True), admitted=True, name="finished")
    elsewhere = replace(workload(said("QuotaReserved", True), admitted=True, name="elsewhere"), flavors=("v5e-4x4",))
    found = only(replace(JOB, workload=waiting), others=(finished, elsewhere))
    assert (found.cause, found.evidence) == (Cause.QUOTA_TAKEN, (NO_QUOTA,))


def test_a_refusal_without_a_time_dates_from_when_the_job_was_queued() -> None:
    waiting = workload(said("QuotaReserved", False, "Pending", NO_QUOTA, since=0.0))
    assert only(replace(JOB, workload=waiting)).since == waiting.created


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (TOO_LARGE, Cause.QUOTA_TOO_SMALL),
        (NO_ROOM, Cause.NO_SLICE_FREE),
        ("something that nobody has seen yet", Cause.NOT_ADMITTED),
    ],
)
def test_each_refusal_of_the_queue_has_its_cause(message: str, cause: Cause) -> None:
    found = only(replace(JOB, workload=workload(said("QuotaReserved", False, "Pending", message)), position=1))
    assert (found.cause, found.evidence) == (cause, (message,))


@pytest.mark.parametrize(("reason", "words"), [("Stopped", "it is on hold"), ("FlavorNotFound", "it is not ready")])
def test_a_queue_that_admits_nothing_comes_before_what_it_says_of_the_job(reason: str, words: str) -> None:
    job = replace(JOB, workload=workload(said("QuotaReserved", False, "Inadmissible", "is inactive")))
    queue = Queue("research", "research", (), 1, 0, (said("Active", False, reason, "Can't admit new workloads"),))
    (found,) = explain(Snapshot("dev", "-s dev", "dev", NOW, queues=(queue,), jobs=(job,)), job)
    assert (found.cause, words in found.what) == (Cause.QUEUE_CLOSED, True)


def test_a_queue_that_a_used_up_budget_stopped_is_reported_with_how_to_raise_the_budget() -> None:
    job = replace(JOB, workload=workload(said("QuotaReserved", False, "Inadmissible", "is inactive")))
    stopped, used = said("Active", False, "Stopped", "Can't admit new workloads"), "$12.00 of $10.00 used"
    queue = Queue("research", "research", (), 1, 0, (stopped,), over_budget=used)
    (found,) = explain(Snapshot("dev", "-s dev", "dev", NOW, queues=(queue,), jobs=(job,)), job)
    assert (found.cause, found.evidence) == (Cause.QUEUE_CLOSED, (used,))
    assert "then run: multislice enforce-budget -s dev" in found.next[0]
    (found,) = explain(Snapshot("dev", "--namespace research", "dev", NOW, queues=(queue,), jobs=(job,)), job)
    assert "ask the owner of stack dev to run: multislice enforce-budget -s dev" in found.next[0]


def test_a_job_that_rests_after_an_eviction_is_reported_when_it_is_looked_at_again() -> None:
    found = only(replace(JOB, workload=replace(workload(), requeue_at=NOW + 60)))
    assert (found.cause, "in 60 s" in found.what) == (Cause.BACKING_OFF, True)


def test_slices_that_google_cloud_has_yet_to_bring_are_reported() -> None:
    reserved = replace(workload(said("QuotaReserved", True), admitted=True), checks=(("queued", "Pending", "ETA"),))
    found = only(replace(JOB, workload=reserved))
    assert (found.cause, found.evidence) == (Cause.CAPACITY_PENDING, ("queued: Pending: ETA",))


def test_a_preempted_job_is_reported_with_the_preemptor_and_the_reason() -> None:
    evicted = workload(
        said("Evicted", True, "Preempted", PREEMPTED),
        said("Preempted", True, "InClusterQueue", PREEMPTED),
        said("QuotaReserved", False, "Pending", NO_QUOTA),
    )
    other = workload(said("QuotaReserved", True), admitted=True, name="other")
    preempted, waits = findings(replace(JOB, workload=evicted, position=1), others=(other,))
    assert preempted.cause is Cause.PREEMPTED
    assert "by job other of research, because it has a higher priority in the same queue." in preempted.what
    assert waits.cause is Cause.QUOTA_TAKEN


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
    replace(JOB, workload=workload(said("QuotaReserved", False, "Pending", TOO_LARGE))),
)


@pytest.mark.parametrize("job", _TO_BE_CHANGED)
@pytest.mark.parametrize("options", ["-s dev", "--namespace research"])
@pytest.mark.parametrize("declared", [True, False])
def test_a_job_that_must_be_changed_is_submitted_again_by_those_who_can(job: Job, options: str, declared: bool) -> None:
    job = replace(job, declared=declared)
    advice = explain(Snapshot("dev", options, "dev", NOW, nodes=NODES, jobs=(job,)), job)[0].next
    for line in advice:
        if not declared:
            assert not re.search("stack file|multislice up", line)
        elif "multislice up" in line and options != "-s dev":
            assert "ask the owner of stack dev" in line


def test_what_the_scheduler_says_of_hosts_without_a_node_is_reported() -> None:
    pending = replace(PODS[3], phase="Pending", node="", waits_for="0/4 nodes are available")
    found = only(replace(JOB, pods=(*PODS[:3], pending)))
    assert (found.cause, found.what) == (Cause.NO_NODE, "1 host of the job has no node.")
    assert found.evidence == ("slice-1-1: 0/4 nodes are available",)


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


def test_a_container_that_does_not_start_is_reported_in_kubelets_words() -> None:
    held = replace(PODS[0], phase="Pending", held_up="ImagePullBackOff: no such image")
    found = only(replace(JOB, pods=(held, *PODS[1:])))
    assert (found.cause, found.what) == (Cause.NOT_STARTED, "1 host cannot start the container: ImagePullBackOff.")


def test_a_job_whose_pods_are_refused_is_reported_what_refuses_them() -> None:
    refused = Event(9_500.0, "JobSet", "tiny", "JobCreationFailed", 'Unsupported value: "x"')
    waits = Event(9_500.0, "Job", "tiny-slice-0", "FailedCreate", "follower pod node selector not found")
    exists = Event(9_500.0, "JobSet", "tiny", "JobCreationFailed", 'jobs.batch "tiny-slice-1" already exists')
    found = only(replace(JOB, events=(waits, exists, refused)))
    assert (found.cause, found.evidence) == (Cause.CREATION_REFUSED, ('JobSet tiny: Unsupported value: "x"',))


def test_a_heads_node_is_not_lost_because_it_is_none_of_a_slice() -> None:
    found = only(replace(JOB, heads=1, pods=(pod("head-0-0"), *PODS)))
    assert (found.cause, found.what.startswith("All hosts run")) == (Cause.RUNNING, True)


def test_a_head_does_not_stand_for_a_host_that_is_refused() -> None:
    refused = Event(9_500.0, "Job", "tiny-slice-1", "FailedCreate", 'Unsupported value: "x"')
    found = only(replace(JOB, heads=1, pods=(pod("head-0-0"), *PODS[:3]), events=(refused,)))
    assert (found.cause, found.what) == (Cause.CREATION_REFUSED, "The API server refuses 1 host of the job.")


def answered(folder: Path, *, as_json: bool) -> str:
    shown = Console(file=io.StringIO(), width=20, highlight=False)
    with playing(running()) as server:
        server.collections[WORKLOADS] = [waiting("tiny")]
        assert command(stack(server, folder), None, shown, json=as_json) == 0
    return read_output(shown)


def test_a_waiting_job_is_explained_with_a_command_on_one_line(tmp_path: Path) -> None:
    lines = answered(tmp_path, as_json=False).splitlines()
    assert lines[0] == "tiny  queued"
    assert lines[2].startswith("The job requests 0 chips, and 16 of them are in use. It is number 1 in line.  since ")
    assert "  -> to run it earlier, raise its `priority` in the stack file of dev, then run `multislice up -s dev`" in [
        line.rstrip() for line in lines
    ]


def test_as_json_each_finding_has_its_cause(tmp_path: Path) -> None:
    answer = json.loads(answered(tmp_path, as_json=True))
    assert (answer["job"], answer["state"]) == ("tiny", "queued")
    assert [finding["cause"] for finding in answer["findings"]] == ["quota taken"]
