"""Faults that strike nodes: deleted, cut off, lost with their machine, a whole node pool gone; and back."""

import os
import signal
import time
from collections.abc import Sequence

from chaos.fault import UNDISTURBED, Expected, Fault
from chaos.faults.pace import PACED, at_least
from chaos.faults.process import GONE, left
from chaos.field import BETWEEN_SAVES, Field
from chaos.sabotage import sabotaged
from infra.kubernetes import Json
from infra.names import NODE_POOL_LABEL, NODES
from sandbox.control_plane import TOLERATED_SECONDS
from sandbox.site import SILENT_ANNOTATION

_SYSTEM_TAINTS = "node.kubernetes.io/"
_UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}.items()
_HOST = "slice-1-1"
_PODS_GONE_SECONDS = 150
"""Longer than Kubernetes waits before it removes pods whose node is gone (kubernetes/pkg/controller/podgc)."""
_NOTICED_SECONDS = 120
_STEP_SECONDS = 8.0
"""The steps that are left last 112 s: longer than Kubernetes takes to give a silent node up and to evict its pods."""


def _node_of(field: Field, job: str) -> Json:
    (name,) = [pod["spec"]["nodeName"] for pod in field.pods(job) if _name(pod).startswith(f"{job}-{_HOST}-")]
    return field.api.request("GET", f"{NODES}/{name}")


def _replace(field: Field, nodes: Sequence[Json]) -> None:
    """Delete the Nodes at once, and make them anew when nothing runs on them, as GKE's repair does."""
    names = {_name(node) for node in nodes}
    for name in names:
        field.api.delete(f"{NODES}/{name}", {})
    try:
        field.wait(
            f"the pods on {sorted(names)} to end",
            lambda: not any(_runs_on(names, pod) for pod in field.objects("/api/v1/pods")),
            _PODS_GONE_SECONDS,
        )
    finally:
        for node in nodes:
            field.api.request("POST", NODES, _as_registered(node))


def _runs_on(nodes: set[str], pod: Json) -> bool:
    return pod["spec"].get("nodeName") in nodes and pod["status"].get("phase") in ("Pending", "Running")


def _as_registered(node: Json) -> Json:
    """The Node as its kubelet first declares it, without what the cluster has put on it since."""
    taints = [each for each in node["spec"].get("taints", []) if not each["key"].startswith(_SYSTEM_TAINTS)]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": _name(node), "labels": node["metadata"]["labels"]},
        "spec": {"providerID": node["spec"]["providerID"], "taints": taints},
        "status": {key: value for key, value in node["status"].items() if key != "conditions"},
    }


def _silence(field: Field, node: Json, *, silent: bool) -> None:
    annotations = {SILENT_ANNOTATION: "true" if silent else None}
    field.api.patch(f"{NODES}/{_name(node)}", {"metadata": {"annotations": annotations}})


def _name(item: Json) -> str:
    return item["metadata"]["name"]


def _delete_node(field: Field, job: str) -> None:
    _replace(field, [_node_of(field, job)])


def _delete_pool(field: Field, job: str) -> None:
    pool = _node_of(field, job)["metadata"]["labels"][NODE_POOL_LABEL]
    _replace(field, field.objects(NODES, f"{NODE_POOL_LABEL}={pool}"))


def _cut_off(field: Field, job: str) -> None:
    """Until Kubernetes has given the node up."""
    node = _node_of(field, job)
    _silence(field, node, silent=True)

    def given_up() -> bool:
        return any(taint.items() >= _UNREACHABLE for taint in _again(field, node)["spec"].get("taints", []))

    pods = {pod["metadata"]["uid"] for pod in field.pods(job)}
    try:
        field.wait(f"{_name(node)} to be unreachable", given_up, _NOTICED_SECONDS)
        # Pods that do not say how long they stay on such a node are evicted meanwhile.
        time.sleep(3 * TOLERATED_SECONDS)
        field.wait("the same pods", lambda: pods == {pod["metadata"]["uid"] for pod in field.pods(job)}, 1)
        field.wait(f"{job} to train still", lambda: not field.ended(job), 1)
    finally:
        _silence(field, node, silent=False)


def _again(field: Field, node: Json) -> Json:
    return field.api.request("GET", f"{NODES}/{_name(node)}")


def _lose_machine(field: Field, job: str) -> None:
    """Without a word, and GKE's repair some time later; the others see it long before the cluster does."""
    node, pid = _node_of(field, job), field.pid(f"{job}-{_HOST}")
    _silence(field, node, silent=True)
    os.kill(pid, signal.SIGKILL)
    try:
        field.wait(f"a restart of {job}", lambda: field.jobset(job)["status"].get("restarts", 0) == 1, _NOTICED_SECONDS)
    finally:
        _replace(field, [node])


FAULTS = (
    Fault(
        "node-deleted", "a Node is deleted and made anew", _delete_node, left("node-deleted"), BETWEEN_SAVES, edit=PACED
    ),
    Fault(
        "pool-gone", "all nodes of a slice go and come back", _delete_pool, left("pool-gone"), BETWEEN_SAVES, edit=PACED
    ),
    Fault(
        "node-silent",
        "a node cannot reach the cluster until it counts as unreachable; its host trains on",
        _cut_off,
        UNDISTURBED,
        at_step=BETWEEN_SAVES,
        edit=sabotaged(at_least(_STEP_SECONDS)),
    ),
    Fault(
        "machine-lost",
        "a machine goes without a word, and GKE replaces it",
        _lose_machine,
        # The others end first, and nobody can tell them yet whether their peer's machine or its program failed.
        Expected(charged=1, endings=GONE, recovery_seconds=240),
        at_step=BETWEEN_SAVES,
        edit=PACED,
    ),
)
