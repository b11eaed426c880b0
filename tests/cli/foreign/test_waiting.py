"""`explain` on jobs that wait in queues that other tools made, and their positions in line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.api_server import Played
from tests.cli.foreign.clusters import busy, condition, foreign, job, jobset, pods, waiting, workload
from tests.cli.rehearse.clusters import TPU, Object, cluster_queue, local_queue, path, xpk
from tests.cli.shown import check

type Answer = Callable[..., dict[str, Any]]


def positions(answer: Answer, *objects: Object) -> dict[str, int | None]:
    return {each["name"]: each["position"] for each in answer(foreign(*objects), "list")["jobs"]}


def refused(*reasons: str) -> str:
    return f"couldn't assign flavors to pod set slice: {', '.join(reasons)}"


def lacking(flavor: str, count: int = 16) -> str:
    return f"insufficient unused quota for {TPU} in flavor {flavor}, {count} more needed"


def too_small(flavor: str, most: int) -> str:
    asked = "previously considered podsets requests (0) + current podset request (64)"
    return f"insufficient quota for {TPU} in flavor {flavor}, {asked} > maximum capacity ({most})"


def waits(message: str, *objects: Object) -> Played:
    return foreign(*xpk(), *objects, jobset("eval", suspend=True), waiting("eval", message))


def among_others(message: str) -> Played:
    """A job of the queue has chips of two flavors, one of its cohort has others, and one of neither too."""
    two = workload("two", 8, "a")
    two["spec"]["podSets"].append({**two["spec"]["podSets"][0], "name": "second"})
    two["status"]["admission"]["podSetAssignments"].append({"name": "second", "count": 1, "flavors": {TPU: "other"}})
    queues = [*xpk(cohort="all"), cluster_queue("lender", {}, cohort="all"), cluster_queue("stranger", {})]
    others = [
        workload("borrower", 16, "b", namespace="theirs", cluster_queue="lender"),
        workload("unrelated", 64, "a", namespace="theirs", cluster_queue="stranger"),
    ]
    return foreign(*queues, two, *others, jobset("eval", suspend=True), waiting("eval", message))


def unread(*, labelled: bool) -> Played:
    """A suspended job without a readable workload, with Kueue or without."""
    played = foreign(*xpk(), jobset("eval", suspend=True), waiting("eval"))
    played.refused |= dict.fromkeys((path("workloads"), path("workloads", namespace="default")), 403)
    if not labelled:
        played = foreign(jobset("eval", queue=None, suspend=True))
        played.collections["/apis"] = played.collections["/apis"][1:]
    return played


def preempted() -> Played:
    said = (
        condition("Evicted", "Preempted", "Preempted to accommodate a workload (UID: jobset-llama, JobUID: uid-llama)"),
        condition("Preempted", "InClusterQueue", "Preempted (UID: jobset-llama, JobUID: uid-llama) due to priority"),
    )
    stats = {"schedulingStats": {"evictions": [{"reason": "Preempted", "count": 2}]}}
    evicted = workload("eval", 16, None, said, status=stats)
    return foreign(*xpk(), jobset("eval", suspend=True), evicted, jobset("llama"), workload("llama"))


def in_queues(*objects: Object) -> Played:
    """Beside the queue of xpk, one that is closed and one that is on hold."""
    stopped = condition("Active", "Stopped", "it is stopped", status="False")
    closed = cluster_queue("closed", {}, stopPolicy="Hold") | {"status": {"conditions": [stopped]}}
    queues = [closed, local_queue("closed", "closed"), local_queue("held", "cluster-queue", stopPolicy="Hold")]
    return foreign(*xpk(), *queues, *objects)


def lost(name: str) -> Object:
    """Its queue does not exist, and has the name of a ClusterQueue."""
    return waiting(name, queue="cluster-queue", priority=5)


def gated(name: str) -> Object:
    found = waiting(name, priority=5)
    found["metadata"]["annotations"] = {"kueue.x-k8s.io/admission-gated-by": "example.com/gate"}
    return found


SUSPENDED = jobset("eval", suspend=True)
LEAVING = workload("eval", conditions=[condition("Evicted", "Preempted", "Preempted by another")])
BROKEN, COMPLETE = [condition("Finished", "Failed", "it broke")], [condition("Complete")]
DELETED = jobset("eval", metadata={"deletionTimestamp": "2026-01-05T12:00:00Z"})
CPUS = "insufficient unused quota for cpu in flavor a, 500m more needed"
CASES: dict[str, Callable[[], Played]] = {
    "what another resource lacks": lambda: waits(refused(CPUS)),
    "one flavor is taken and one too small": lambda: waits(refused(too_small("small", 16), lacking("large"))),
    "all are too small": lambda: waits(refused(too_small("a", 16), too_small("b", 32), too_small("c", 8))),
    "one is taken and too small": lambda: waits(refused(lacking("a"), too_small("a", 16))),
    "two are taken": lambda: waits(refused(lacking("a"), lacking("b", 8))),
    "holders are those of the same queue or cohort": lambda: among_others(refused(lacking("a"), lacking("b"))),
    "holders of chips lack nobody a cpu": lambda: among_others(refused(CPUS)),
    "a workload that cannot be read": lambda: unread(labelled=True),
    "a suspended job without Kueue": lambda: unread(labelled=False),
    "a job that is preempted": preempted,
    "a job that is being evicted": lambda: foreign(*xpk(), SUSPENDED, LEAVING, *pods("eval")),
    "a queue with the name of a ClusterQueue": lambda: foreign(
        *xpk(), jobset("eval", queue="cluster-queue", suspend=True), lost("eval")
    ),
    "a job behind a gate": lambda: foreign(*xpk(), SUSPENDED, gated("eval")),
    "a queue that does not exist": lambda: in_queues(jobset("eval", queue="gone", suspend=True)),
    "no queue": lambda: in_queues(jobset("eval", queue=None, suspend=True)),
    "a queue on hold": lambda: in_queues(SUSPENDED, waiting("eval", queue="held")),
    "a closed queue": lambda: in_queues(SUSPENDED, waiting("eval", queue="closed")),
    "a failed job": lambda: in_queues(jobset("eval", ended="Failed"), workload("eval")),
    "a running job": lambda: in_queues(jobset("eval"), workload("eval"), *pods("eval")),
    "a failed RayJob": lambda: in_queues(workload("eval", kind="RayJob", conditions=BROKEN)),
    "a completed Job": lambda: in_queues(job("eval", conditions=COMPLETE), workload("eval", kind="Job")),
    "a job that is deleted": lambda: in_queues(DELETED, workload("eval")),
}


@pytest.mark.costs(cpu_seconds=8)
def test_what_is_explained_is_what_the_golden_file_says_and_nothing_about_a_stack(
    answer: Answer, tmp_path: Path
) -> None:
    lines: list[str] = []
    for name, made in CASES.items():
        lines += ["", f"# {name}"]
        for found in answer(made(), "explain", "eval")["findings"]:
            lines += [f"{found['cause']}: {found['what']}", *(f"  {line}" for line in found["evidence"])]
            lines += [f"  -> {line}" for line in found["next"]]
    text = "\n".join(lines[1:]).replace(str(tmp_path), "FOLDER") + "\n"
    assert [word for word in ("stack", "team", "max_hours", "multislice up") if word in text] == []
    check("explained-foreign", text)


@pytest.mark.parametrize(("queue", "made"), [("cluster-queue", lost), ("multislice-queue", gated)])
def test_a_job_that_cannot_be_admitted_is_in_no_line(answer: Answer, queue: str, made: Callable[[str], Object]) -> None:
    objects = [*busy(), jobset("next", queue=queue, suspend=True), made("next")]
    assert positions(answer, *objects) == {"llama": None, "eval": 2, "next": None}


@pytest.mark.parametrize(("reason", "places"), [("PodsReadyTimeout", [2, 1]), ("Preempted", [1, 2])])
def test_a_job_that_did_not_become_ready_goes_to_the_end_of_its_line(
    reason: str, places: list[int], answer: Answer
) -> None:
    old = waiting("old")
    old["metadata"]["creationTimestamp"] = "2026-01-05T11:00:00Z"
    old["status"]["conditions"].append(condition("Evicted", reason, at="2026-01-05T13:00:00Z"))
    objects = [*xpk(), jobset("old", suspend=True), old, jobset("eval", suspend=True), waiting("eval")]
    assert positions(answer, *objects) == dict(zip(("old", "eval"), places, strict=True))
