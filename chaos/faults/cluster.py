"""Faults of the cluster: deleted, disconnected or lost nodes, and servers and controllers that are down."""

import os
import signal
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from chaos.faults.hosts import GONE, at_least, between_saves, preempted
from chaos.sabotage import add_sabotages
from chaos.target import BETWEEN_SAVES, Fault, Target
from chaos.verdict import UNDISTURBED, Expected
from infra import names
from infra.kubernetes import Json
from infra.names import NODE_POOL_LABEL
from sandbox import daemon
from sandbox.operators import program_of
from sandbox.servers import TOLERATED_SECONDS
from sandbox.site import SILENT_ANNOTATION, taken_ports

_DEPLOYMENTS = "/apis/apps/v1/deployments"
_SCALED_SECONDS = 60


@contextmanager
def operator_down(target: Target, name: str) -> Generator[None]:
    """Scale the operator `name` to no process inside the context, and back afterwards."""
    replicas = _deployment(target, name)["spec"]["replicas"]
    _scale(target, name, 0)
    try:
        yield
    finally:
        _scale(target, name, replicas)


def _deployment(target: Target, name: str) -> Json:
    (found,) = [each for each in target.objects(_DEPLOYMENTS) if program_of(each) == name]
    return found


def _scale(target: Target, name: str, replicas: int) -> None:
    metadata = _deployment(target, name)["metadata"]
    path = f"/apis/apps/v1/namespaces/{metadata['namespace']}/deployments/{metadata['name']}"
    target.api.patch(path, {"spec": {"replicas": replicas}})

    def has_settled() -> bool:
        deployment = _deployment(target, name)
        status = deployment["status"]
        seen = status.get("observedGeneration") == deployment["metadata"]["generation"]
        return seen and status.get("availableReplicas", 0) == replicas

    target.wait(f"{replicas} replicas of {name}", has_settled, _SCALED_SECONDS)


_STAYS_SECONDS = 5
_BACK_SECONDS = 120


def _fail_while_jobset_is_down(target: Target, job: str) -> None:
    def has_failed() -> bool:
        jobs = target.objects("/apis/batch/v1/jobs", f"jobset.sigs.k8s.io/jobset-name={job}")
        conditions = [condition for each in jobs for condition in each["status"].get("conditions", [])]
        return any(condition["type"] == "Failed" for condition in conditions)

    with operator_down(target, "jobset"):
        target.send(signal.SIGKILL, job, "slice-1-0")
        target.wait(f"a failed Job of {job}", has_failed, _BACK_SECONDS)
        time.sleep(_STAYS_SECONDS)


def _kill_server(name: str) -> Callable[[Target, str], None]:
    """Kill a server and wait until the sandbox has restarted it and the API answers."""

    def strike(target: Target, _: str) -> None:
        before = target.server_pid(name)
        os.kill(before, signal.SIGKILL)
        target.wait(f"another {name}", lambda: target.server_pid(name) != before and target.api.ready(), _BACK_SECONDS)

    return strike


def _kill_sandbox(target: Target, _: str) -> None:
    pid = daemon.running(target.site)
    assert pid is not None, "the sandbox of a running job must be running"
    os.kill(pid, signal.SIGKILL)
    target.wait(
        "the sandbox to be gone", lambda: not (daemon.running(target.site) or taken_ports(target.site)), _BACK_SECONDS
    )
    daemon.start(target.site, lambda _: None)


CONTROL_PLANE = (
    between_saves(
        "jobset-down",
        "a host is killed while the JobSet controller is down",
        _fail_while_jobset_is_down,
        Expected(endings=GONE, event=r"jobset-down-slice-1-0-\S+ failed with exit code 137"),
    ),
    between_saves("api-server-killed", "the API server restarts", _kill_server("kube-apiserver"), UNDISTURBED),
    between_saves("etcd-killed", "etcd restarts", _kill_server("etcd"), UNDISTURBED),
    between_saves(
        "sandbox-killed",
        "everything stops at once, as in a power failure, and starts again",
        _kill_sandbox,
        # No component is left that could report that the job was not the cause.
        Expected(endings=GONE),
    ),
)


_SYSTEM_TAINTS = "node.kubernetes.io/"
_UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}.items()
_HOST = "slice-1-1"
_PODS_GONE_SECONDS = 150
"""Seconds, longer than Kubernetes waits before it removes pods of a deleted node (kubernetes/pkg/controller/podgc)."""
_NOTICED_SECONDS = 120
_STEP_SECONDS = 8.0
"""The remaining steps take 112 s, longer than Kubernetes takes to give up a silent node and evict its pods."""


def _node_of(target: Target, job: str) -> Json:
    (name,) = [pod["spec"]["nodeName"] for pod in target.pods(job) if _name(pod).startswith(f"{job}-{_HOST}-")]
    return target.api.request("GET", f"{names.NODES}/{name}")


def _replace(target: Target, nodes: Sequence[Json]) -> None:
    """Delete the Nodes, and create them again when nothing runs on them, like GKE's repair."""
    replaced = {_name(node) for node in nodes}
    for name in replaced:
        target.api.delete(f"{names.NODES}/{name}", {})

    def are_empty() -> bool:
        pods = [pod for pod in target.objects("/api/v1/pods") if pod["spec"].get("nodeName") in replaced]
        return not any(pod["status"].get("phase") in ("Pending", "Running") for pod in pods)

    try:
        target.wait(f"the pods on {sorted(replaced)} to end", are_empty, _PODS_GONE_SECONDS)
    finally:
        for node in nodes:
            target.api.request("POST", names.NODES, _initial_node(node))


def _initial_node(node: Json) -> Json:
    """Return the Node as its kubelet first registers it, without what the cluster has added since."""
    taints = [each for each in node["spec"].get("taints", []) if not each["key"].startswith(_SYSTEM_TAINTS)]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": _name(node), "labels": node["metadata"]["labels"]},
        "spec": {"providerID": node["spec"]["providerID"], "taints": taints},
        "status": {key: value for key, value in node["status"].items() if key != "conditions"},
    }


def _silence(target: Target, node: Json, *, silent: bool) -> None:
    annotations = {SILENT_ANNOTATION: "true" if silent else None}
    target.api.patch(f"{names.NODES}/{_name(node)}", {"metadata": {"annotations": annotations}})


def _name(item: Json) -> str:
    return item["metadata"]["name"]


def _delete_pool(target: Target, job: str) -> None:
    pool = _node_of(target, job)["metadata"]["labels"][NODE_POOL_LABEL]
    _replace(target, target.objects(names.NODES, f"{NODE_POOL_LABEL}={pool}"))


def _cut_off(target: Target, job: str) -> None:
    """Silence the node until Kubernetes has given it up."""
    node = _node_of(target, job)
    _silence(target, node, silent=True)

    def given_up() -> bool:
        now = target.api.request("GET", f"{names.NODES}/{_name(node)}")
        return any(taint.items() >= _UNREACHABLE for taint in now["spec"].get("taints", []))

    pods = {pod["metadata"]["uid"] for pod in target.pods(job)}
    try:
        target.wait(f"{_name(node)} to be unreachable", given_up, _NOTICED_SECONDS)
        # Pods without a toleration for such a node are evicted in this time.
        time.sleep(3 * TOLERATED_SECONDS)
        target.wait("the same pods", lambda: pods == {pod["metadata"]["uid"] for pod in target.pods(job)}, 1)
        target.wait(f"{job} to train still", lambda: not target.ended(job), 1)
    finally:
        _silence(target, node, silent=False)


def _lose_machine(target: Target, job: str) -> None:
    """Kill the host of a silent node; GKE's repair comes later. The other hosts notice long before the cluster does."""
    node, pid = _node_of(target, job), target.pid(f"{job}-{_HOST}")
    _silence(target, node, silent=True)
    os.kill(pid, signal.SIGKILL)
    try:
        target.wait(
            f"a restart of {job}", lambda: target.jobset(job)["status"].get("restarts", 0) == 1, _NOTICED_SECONDS
        )
    finally:
        _replace(target, [node])


NODES = (
    between_saves(
        "node-deleted",
        "a Node is deleted and created again",
        lambda target, job: _replace(target, [_node_of(target, job)]),
        preempted("node-deleted"),
    ),
    between_saves("pool-gone", "all nodes of a slice go and come back", _delete_pool, preempted("pool-gone")),
    Fault(
        "node-silent",
        "a node cannot reach the cluster until it counts as unreachable; its host keeps training",
        _cut_off,
        UNDISTURBED,
        at_step=BETWEEN_SAVES,
        edit=add_sabotages(at_least(_STEP_SECONDS)),
    ),
    between_saves(
        "machine-lost",
        "a machine is lost without a signal, and GKE replaces it",
        _lose_machine,
        # The other hosts end first and do not know yet whether their peer's machine or its program failed.
        Expected(charged=1, endings=GONE, recovery_seconds=240),
    ),
)
