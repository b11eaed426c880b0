"""`explain` on jobs that wait in queues that other tools made, and their positions in line."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.foreign.clusters import busy, condition, foreign, job, jobset, pods, waiting, workload
from tests.cli.rehearse.clusters import TPU, Object, cluster_queue, local_queue, path, xpk

type Answer = Callable[..., dict[str, Any]]


def causes(answer: Answer, *objects: Object, name: str = "eval") -> list[dict[str, Any]]:
    return answer(foreign(*objects), "explain", name)["findings"]


def positions(answer: Answer, *objects: Object) -> dict[str, int | None]:
    return {each["name"]: each["position"] for each in answer(foreign(*objects), "list")["jobs"]}


def test_what_another_resource_lacks_is_not_counted_as_chips(answer: Answer) -> None:
    message = (
        "couldn't assign flavors to pod set slice: insufficient unused quota for cpu in flavor f, 500m more needed"
    )
    (found,) = causes(answer, *xpk(), jobset("eval", suspend=True), waiting("eval", message))
    assert (found["cause"], "500m more cpu" in found["what"]) == ("quota taken", True)
    assert "chips" not in found["what"]


def lacking(flavor: str, count: int = 16) -> str:
    return f"insufficient unused quota for {TPU} in flavor {flavor}, {count} more needed"


def too_small(flavor: str, most: int) -> str:
    asked = "previously considered podsets requests (0) + current podset request (64)"
    return f"insufficient quota for {TPU} in flavor {flavor}, {asked} > maximum capacity ({most})"


@pytest.mark.parametrize(
    ("reasons", "cause", "words"),
    [
        ((too_small("small", 16), lacking("large")), "quota taken", "16 of them are in use"),
        ((too_small("a", 16), too_small("b", 32), too_small("c", 8)), "quota too small", "at most 32: it is never"),
        ((lacking("a"), too_small("a", 16)), "quota too small", "at most 16: it is never"),
        ((lacking("a"), lacking("b", 8)), "quota taken", "16 of them are in use in flavor a, 8 of them"),
    ],
)
def test_the_reasons_of_all_flavors_count(reasons: tuple[str, ...], cause: str, words: str, answer: Answer) -> None:
    message = f"couldn't assign flavors to pod set slice: {', '.join(reasons)}"
    (found,) = causes(answer, *xpk(), jobset("eval", suspend=True), waiting("eval", message))
    assert (found["cause"], words in found["what"]) == (cause, True)


def test_only_chips_in_the_same_queue_or_cohort_are_what_a_job_waits_for(answer: Answer) -> None:
    """A job may hold chips of several flavors."""
    message = f"couldn't assign flavors to pod set slice: {lacking('a')}, {lacking('b')}"
    two = workload("two", 8, "a")
    second = {**two["spec"]["podSets"][0], "name": "second"}
    two["spec"]["podSets"].append(second)
    two["status"]["admission"]["podSetAssignments"].append({"name": "second", "count": 1, "flavors": {TPU: "other"}})
    queues = [*xpk(cohort="all"), cluster_queue("lender", {}, cohort="all"), cluster_queue("stranger", {})]
    others = [
        workload("borrower", 16, "b", namespace="theirs", cluster_queue="lender"),
        workload("unrelated", 64, "a", namespace="theirs", cluster_queue="stranger"),
    ]
    found, *_ = causes(answer, *queues, two, *others, jobset("eval", suspend=True), waiting("eval", message))
    assert found["evidence"][1:] == [
        "theirs/borrower has 16 chips, priority 0",
        "default/two has 8 chips, priority 0",
    ]
    message = "couldn't assign flavors to pod set slice: insufficient unused quota for cpu in flavor a, 2 more needed"
    found, *_ = causes(answer, *queues, two, *others, jobset("eval", suspend=True), waiting("eval", message))
    assert found["evidence"] == [message]


@pytest.mark.parametrize("labelled", [True, False])
def test_a_suspended_job_without_a_readable_workload_is_not_explained_by_kueue(labelled: bool, answer: Answer) -> None:
    played = foreign(*xpk(), jobset("eval", suspend=True), waiting("eval"))
    played.refused |= dict.fromkeys((path("workloads"), path("workloads", namespace="default")), 403)
    if not labelled:
        played = foreign(jobset("eval", queue=None, suspend=True))
        played.collections["/apis"] = played.collections["/apis"][1:]
    (found,) = answer(played, "explain", "eval")["findings"]
    assert "The job is suspended" in found["what"]
    assert not {"controller", "never"} & set(found["what"].split())
    assert (found["cause"], bool(found["next"])) == ("not admitted", not labelled)


def test_a_job_whose_queue_does_not_exist_is_in_no_line(answer: Answer) -> None:
    """The queue that it names is called like a ClusterQueue."""
    lost = waiting("lost", queue="cluster-queue", priority=5)
    objects = [*busy(), jobset("lost", queue="cluster-queue", suspend=True), lost]
    assert positions(answer, *objects) == {"llama": None, "eval": 2, "lost": None}
    (found,) = causes(answer, *objects, name="lost")
    assert found["what"] == ("LocalQueue cluster-queue does not exist in namespace default; it has: multislice-queue.")


def test_a_gated_job_is_in_no_line(answer: Answer) -> None:
    gated = waiting("gated", priority=5)
    gated["metadata"]["annotations"] = {"kueue.x-k8s.io/admission-gated-by": "example.com/gate"}
    objects = [*busy(), jobset("gated", suspend=True), gated]
    assert positions(answer, *objects) == {"llama": None, "eval": 2, "gated": None}
    (found,) = causes(answer, *objects, name="gated")
    assert (found["cause"], "example.com/gate" in found["evidence"][0]) == ("not admitted", True)


@pytest.mark.parametrize(("reason", "places"), [("PodsReadyTimeout", [2, 1]), ("Preempted", [1, 2])])
def test_a_job_that_did_not_become_ready_goes_to_the_end_of_its_line(
    reason: str, places: list[int], answer: Answer
) -> None:
    old = waiting("old")
    old["metadata"]["creationTimestamp"] = "2026-01-05T11:00:00Z"
    old["status"]["conditions"].append(condition("Evicted", reason, at="2026-01-05T13:00:00Z"))
    objects = [*xpk(), jobset("old", suspend=True), old, jobset("eval", suspend=True), waiting("eval")]
    assert positions(answer, *objects) == dict(zip(("old", "eval"), places, strict=True))


def test_a_job_that_is_being_evicted_is_not_running(answer: Answer) -> None:
    leaving = workload("eval", conditions=[condition("Evicted", "Preempted", "Preempted by another")])
    objects = [*xpk(), jobset("eval", suspend=True), leaving, *pods("eval")]
    assert [each["state"] for each in answer(foreign(*objects), "list")["jobs"]] == ["evicted"]
    first, *_ = causes(answer, *objects)
    assert (first["cause"], "again since" in first["what"], bool(first["next"])) == ("evicted", False, True)


def test_a_preempted_job_is_explained_with_the_job_that_preempted_it(answer: Answer) -> None:
    said = (
        condition("Evicted", "Preempted", "Preempted to accommodate a workload (UID: jobset-llama, JobUID: uid-llama)"),
        condition("Preempted", "InClusterQueue", "Preempted (UID: jobset-llama, JobUID: uid-llama) due to priority"),
    )
    stats = {"schedulingStats": {"evictions": [{"reason": "Preempted", "count": 2}]}}
    evicted = workload("eval", 16, None, said, status=stats)
    first, *_ = causes(answer, *xpk(), jobset("eval", suspend=True), evicted, jobset("llama"), workload("llama"))
    assert first["what"].startswith("The job was preempted by job llama of default, because it has a higher priority")
    assert "Preempted: 2 times so far" in first["evidence"]


@pytest.mark.parametrize(
    ("objects", "cause"),
    [
        ([jobset("eval", queue="gone", suspend=True)], "no workload"),
        ([jobset("eval", queue=None, suspend=True)], "no workload"),
        ([jobset("eval", suspend=True), waiting("eval", queue="held")], "paused"),
        ([jobset("eval", suspend=True), waiting("eval", queue="closed")], "queue closed"),
        ([jobset("eval", ended="Failed"), workload("eval")], "failed"),
        ([jobset("eval"), workload("eval"), *pods("eval")], "running"),
        ([workload("eval", kind="RayJob", conditions=[condition("Finished", "Failed", "it broke")])], "failed"),
        ([job("eval", conditions=[condition("Complete")]), workload("eval", kind="Job")], "completed"),
        ([jobset("eval", metadata={"deletionTimestamp": "2026-01-05T12:00:00Z"}), workload("eval")], "being deleted"),
    ],
)
def test_no_advice_is_about_a_stack(objects: list[Object], cause: str, answer: Answer) -> None:
    stopped = condition("Active", "Stopped", "it is stopped", status="False")
    closed = cluster_queue("closed", {}, stopPolicy="Hold") | {"status": {"conditions": [stopped]}}
    queues = [closed, local_queue("closed", "closed"), local_queue("held", "cluster-queue", stopPolicy="Hold")]
    found = causes(answer, *xpk(), *queues, *objects)
    assert cause in [each["cause"] for each in found]
    for word in ("stack", "team", "max_hours", "multislice up"):
        assert word not in str(found)
