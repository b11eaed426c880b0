"""Queues and workloads read from manifests."""

from typing import Any

import pytest

from infra.review.admission import manifests
from infra.review.admission.manifests import usable_flavors
from infra.review.admission.situation import Admission

X = {"metadata": {"name": "x"}, "spec": {"nodeLabels": {"group": "x", "chips": "4"}}}
Y = {"metadata": {"name": "y"}, "spec": {"nodeLabels": {"group": "y"}}}
TAINT = {"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}


def _affinity(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def _rule(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": values}


@pytest.mark.parametrize(
    ("pod", "usable"),
    [
        ({}, {"x", "y"}),
        ({"nodeSelector": {"group": "x"}}, {"x"}),
        ({"nodeSelector": {"group": "x", "disk": "large"}}, {"x"}),
        (_affinity([_rule("group", "In", "y", "z")]), {"y"}),
        (_affinity([_rule("group", "NotIn", "y")]), {"x"}),
        (_affinity([_rule("group", "In", "z")], [_rule("group", "Exists")]), {"x", "y"}),
        (_affinity([_rule("group", "DoesNotExist")]), set[str]()),
        # The other flavor says nothing of its chips, so whatever is asked of them does not rule it out.
        (_affinity([_rule("chips", "Gt", "4")]), {"y"}),
        (_affinity([_rule("chips", "Lt", "8")]), {"x", "y"}),
        # A label that is no number is neither larger nor smaller than one.
        (_affinity([_rule("group", "Gt", "4")]), set[str]()),
    ],
)
def test_of_selector_and_affinity_a_flavors_own_labels_count(pod: dict[str, Any], usable: set[str]) -> None:
    assert usable_flavors(pod, [X, Y]) == usable


@pytest.mark.parametrize(
    ("toleration", "suits"),
    [
        ({"key": "google.com/tpu", "operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "google.com/tpu", "value": "present"}, True),
        ({"key": "google.com/tpu", "value": "absent"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "google.com/tpu", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_taints_must_be_tolerated(toleration: dict[str, Any], suits: bool) -> None:
    tainted = {"metadata": {"name": "x"}, "spec": {"nodeTaints": [TAINT, TAINT | {"effect": "PreferNoSchedule"}]}}
    assert usable_flavors({}, [tainted]) == set()
    assert usable_flavors({"tolerations": [toleration]}, [tainted]) == ({"x"} if suits else set())


TPU = "google.com/tpu"
FLAVOR = {
    "metadata": {"name": "trillium"},
    "spec": {
        "nodeLabels": {"slice-group": "trillium"},
        "nodeTaints": [{"key": TPU, "value": "present", "effect": "NoSchedule"}],
    },
}
LOCAL_QUEUES = {("research", "research"): "research"}


def _workload(name: str = "jobset-llama-1a2b3", **changes: Any) -> dict[str, Any]:
    pod = {
        "tolerations": [{"key": TPU, "operator": "Exists"}],
        "containers": [{"resources": {"requests": {TPU: "4"}, "limits": {TPU: "4"}}}, {}],
    }
    metadata = {
        "name": name,
        "namespace": "research",
        "uid": "0123",
        "creationTimestamp": "1970-01-01T00:01:00Z",
        "ownerReferences": [{"kind": "JobSet", "name": "llama"}],
    }
    spec = {
        "queueName": "research",
        "priority": 500,
        "podSets": [{"name": "slice", "count": 8, "template": {"spec": pod}}],
    }
    return {"metadata": metadata, "spec": spec | changes.pop("spec", {}), **changes}


def _condition(kind: str, reason: str = "", status: str = "True") -> dict[str, str]:
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": "1970-01-01T00:02:00Z"}


def _status(*conditions: dict[str, str], **status: Any) -> dict[str, Any]:
    assignment = {"name": "slice", "count": 8, "flavors": {TPU: "trillium"}}
    admission = {"clusterQueue": "research", "podSetAssignments": [assignment]}
    return {"conditions": list(conditions), "admission": admission, **status}


def _read(*found: dict[str, Any]) -> Any:
    return manifests.workloads(found, LOCAL_QUEUES, [FLAVOR])


def test_a_running_one_has_its_flavor_and_gives_back_what_its_ended_pods_had() -> None:
    ended = [{"name": "slice", "count": 2}]
    (workload,) = _read(_workload(status=_status(_condition("QuotaReserved"), reclaimablePods=ended)))
    assert workload.admission == Admission(flavors=("trillium",), reserved_at=120, evicted=False)
    assert workload.usage == {"trillium": 24}


def test_an_evicted_one_holds_its_chips_until_its_pods_are_gone() -> None:
    evicted = _condition("Evicted", "Preempted")
    going, gone = _read(
        _workload(status=_status(_condition("QuotaReserved"), evicted)),
        _workload(status=_status(_condition("QuotaReserved", status="False"), evicted)),
    )
    assert going.admission
    assert going.admission.evicted
    assert (gone.admission, gone.queued_at) == (None, 60)


def test_one_whose_pods_did_not_come_up_is_behind_those_that_waited_then() -> None:
    (workload,) = _read(_workload(status={"conditions": [_condition("Evicted", "PodsReadyTimeout")]}))
    assert workload.queued_at == 120


def test_what_ended_is_not_active_or_is_of_no_queue_of_the_plan_does_not_count() -> None:
    assert not _read(
        _workload(status=_status(_condition("QuotaReserved"), _condition("Finished"))),
        _workload(spec={"active": False}),
        _workload(spec={"queueName": "another"}),
    )


def test_pods_without_chips_ask_for_no_flavor() -> None:
    head = {"name": "head", "count": 1, "template": {"spec": {"containers": [{"resources": {"requests": {"cpu": 8}}}]}}}
    slices = _workload()["spec"]["podSets"]
    waiting = _workload(spec={"podSets": [head, *slices]})
    assignments = [{"name": "head", "count": 1}, {"name": "slice", "count": 8, "flavors": {TPU: "trillium"}}]
    admission = {"clusterQueue": "research", "podSetAssignments": assignments}
    running = {**waiting, "status": _status(_condition("QuotaReserved"), admission=admission)}
    (asks,), (has,) = _read(waiting), _read(running)
    assert [pods.name for pods in asks.pod_sets] == ["slice"]
    assert (asks.chips, has.usage) == (32, {"trillium": 32})
