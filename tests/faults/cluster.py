"""Faults of the cluster: deleted, disconnected or lost nodes, and servers and controllers that are down."""

import os
import signal
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from infra.cluster.kubernetes import Json
from infra.stack import names
from infra.stack.names import NODE_POOL_LABEL
from sandbox import daemon
from sandbox.node_agent.environment import ImageError
from sandbox.node_agent.pod import REFUSED
from sandbox.operators import program_of
from sandbox.servers import TOLERATED_SECONDS
from sandbox.site import BROKEN_ANNOTATION, PULLS_NO_IMAGES, REFUSES_PODS, SILENT_ANNOTATION, taken_ports
from tests.chain.stack import STEPS, Chain, ignore
from tests.faults.fault import (
    BETWEEN_SAVES,
    GONE,
    LEADER,
    PREEMPTED,
    TAKE_STEP,
    UNDISTURBED,
    Expected,
    Fault,
)
from tests.faults.hosts import at_least, between_saves
from tests.faults.sabotage import Sabotage, add_sabotages
from workloads.spec import ExitCode

_SCALED_SECONDS = 60


@contextmanager
def operator_down(chain: Chain, name: str) -> Generator[None]:
    """Scale the operator `name` to no process inside the context, and back afterwards."""
    replicas = _deployment(chain, name)["spec"]["replicas"]
    _scale(chain, name, 0)
    try:
        yield
    finally:
        _scale(chain, name, replicas)


def _deployment(chain: Chain, name: str) -> Json:
    (found,) = [each for each in chain.objects("deployments") if program_of(each) == name]
    return found


def _scale(chain: Chain, name: str, replicas: int) -> None:
    metadata = _deployment(chain, name)["metadata"]
    path = f"/apis/apps/v1/namespaces/{metadata['namespace']}/deployments/{metadata['name']}"
    chain.api.patch(path, {"spec": {"replicas": replicas}})

    def has_settled() -> bool:
        deployment = _deployment(chain, name)
        status = deployment["status"]
        seen = status.get("observedGeneration") == deployment["metadata"]["generation"]
        return seen and status.get("availableReplicas", 0) == replicas

    chain.wait(f"{replicas} replicas of {name}", has_settled, _SCALED_SECONDS)


_STAYS_SECONDS = 5
_BACK_SECONDS = 120


def _fail_while_jobset_is_down(chain: Chain, job: str) -> None:
    def has_failed() -> bool:
        jobs = chain.objects("jobs", f"{names.JOBSET_LABEL}={job}")
        conditions = [condition for each in jobs for condition in each["status"].get("conditions", [])]
        return any(condition["type"] == "Failed" for condition in conditions)

    with operator_down(chain, "jobset"):
        chain.send_to_pods(signal.SIGKILL, job, "slice-1-0")
        chain.wait(f"a failed Job of {job}", has_failed, _BACK_SECONDS)
        time.sleep(_STAYS_SECONDS)


def server_pid(chain: Chain, name: str) -> int:
    """Process of a server that the sandbox keeps up, such as `etcd`."""
    return int((chain.site.servers / name).read_text())


def _kill_server(name: str) -> Callable[[Chain, str], None]:
    """Kill a server and wait until the sandbox has restarted it and the API answers."""

    def strike(chain: Chain, _: str) -> None:
        before = server_pid(chain, name)
        os.kill(before, signal.SIGKILL)
        chain.wait(f"another {name}", lambda: server_pid(chain, name) != before and chain.api.ready(), _BACK_SECONDS)

    return strike


def _kill_sandbox(chain: Chain, _: str) -> None:
    pid = daemon.running(chain.site)
    assert pid is not None, "the sandbox of a running job must be running"
    os.kill(pid, signal.SIGKILL)
    chain.wait(
        "the sandbox to be gone", lambda: not (daemon.running(chain.site) or taken_ports(chain.site)), _BACK_SECONDS
    )
    daemon.start(chain.site, ignore)


CONTROL_PLANE = (
    between_saves(
        "jobset-down",
        "a host is killed while the JobSet controller is down",
        Expected(endings=GONE, killed=("slice-1-0",)),
        _fail_while_jobset_is_down,
    ),
    between_saves("api-server-killed", "the API server restarts", UNDISTURBED, _kill_server("kube-apiserver")),
    between_saves("etcd-killed", "etcd restarts", UNDISTURBED, _kill_server("etcd")),
    between_saves(
        "sandbox-killed",
        "everything stops at once, as in a power failure, and starts again",
        # No component is left that could report that the job was not the cause, and JobSet counts each lost slice.
        Expected(endings=GONE, charged=2),
        _kill_sandbox,
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


def _node_of(chain: Chain, job: str) -> Json:
    (name,) = [pod["spec"]["nodeName"] for pod in chain.pods(job) if _name(pod).startswith(f"{job}-{_HOST}-")]
    return chain.api.request("GET", f"{names.NODES}/{name}")


def _pods_of(chain: Chain, job: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in chain.pods(job)}


def _replace(chain: Chain, nodes: Sequence[Json]) -> None:
    """Delete the Nodes, and create them again when nothing runs on them, like GKE's repair."""
    replaced = {_name(node) for node in nodes}
    for name in replaced:
        chain.api.delete(f"{names.NODES}/{name}", {})

    def are_empty() -> bool:
        pods = [pod for pod in chain.objects("pods") if pod["spec"].get("nodeName") in replaced]
        return not any(pod["status"].get("phase") in ("Pending", "Running") for pod in pods)

    try:
        chain.wait(f"the pods on {sorted(replaced)} to end", are_empty, _PODS_GONE_SECONDS)
    finally:
        for node in nodes:
            chain.api.request("POST", names.NODES, _initial_node(node))


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


def _silence(chain: Chain, node: Json, *, silent: bool) -> None:
    annotations = {SILENT_ANNOTATION: "true" if silent else None}
    chain.api.patch(f"{names.NODES}/{_name(node)}", {"metadata": {"annotations": annotations}})


def _name(item: Json) -> str:
    return item["metadata"]["name"]


def _delete_pool(chain: Chain, job: str) -> None:
    pool = _node_of(chain, job)["metadata"]["labels"][NODE_POOL_LABEL]
    _replace(chain, chain.objects("nodes", f"{NODE_POOL_LABEL}={pool}"))


def _cut_off(chain: Chain, job: str) -> None:
    """Silence the node until Kubernetes has given it up."""
    node = _node_of(chain, job)
    _silence(chain, node, silent=True)

    def given_up() -> bool:
        now = chain.api.request("GET", f"{names.NODES}/{_name(node)}")
        return any(taint.items() >= _UNREACHABLE for taint in now["spec"].get("taints", []))

    pods = _pods_of(chain, job)
    try:
        chain.wait(f"{_name(node)} to be unreachable", given_up, _NOTICED_SECONDS)
        # Pods without a toleration for such a node are evicted in this time.
        time.sleep(3 * TOLERATED_SECONDS)
        chain.wait("the same pods", lambda: pods == _pods_of(chain, job), 1)
        chain.wait(f"{job} to train still", lambda: not chain.ended(job), 1)
    finally:
        _silence(chain, node, silent=False)


def _lose_machine(chain: Chain, job: str) -> None:
    """Kill the host of a silent node; GKE's repair comes later. The other hosts notice long before the cluster does."""
    node, pods = _node_of(chain, job), _pods_of(chain, job)
    _silence(chain, node, silent=True)
    chain.send_to_pods(signal.SIGKILL, job, _HOST)
    ended = f"attempt 1 of the job ended with {ExitCode.PEER_LOST.name}"
    try:
        chain.wait("the other hosts to notice it", lambda: ended in chain.log(f"{job}-{LEADER}"), _NOTICED_SECONDS)
        chain.wait("the same pods", lambda: pods == _pods_of(chain, job), 1)
    finally:
        _replace(chain, [node])


_MINUTE_SECONDS, _REPAIR_SECONDS = 60, 120
"""Times in which counted restarts would be used up: without pauses three of them take 4 s."""


def _at_restart(how: str, reason: str, seconds: float) -> Callable[[Chain, str], None]:
    """Kill a host whose node then starts no pod, which `reason` shows, until `seconds` later."""

    def strike(chain: Chain, job: str) -> None:
        path = f"{names.NODES}/{_name(_node_of(chain, job))}"
        chain.api.patch(path, {"metadata": {"annotations": {BROKEN_ANNOTATION: how}}})
        try:
            chain.send_to_pods(signal.SIGKILL, job, _HOST)
            chain.wait(f"a pod with {reason}", lambda: _shows(chain, job, reason), _NOTICED_SECONDS)
            time.sleep(seconds)
        finally:
            chain.api.patch(path, {"metadata": {"annotations": {BROKEN_ANNOTATION: None}}})

    return strike


def _shows(chain: Chain, job: str, reason: str) -> bool:
    """Whether an event or the status of a pod of the job shows `reason`. A restart may swap the nodes of its slices."""
    events = [each for each in chain.objects("events") if each["involvedObject"]["name"].startswith(f"{job}-slice-")]
    states = [
        state
        for pod in chain.pods(job)
        for container in pod["status"].get("containerStatuses", [])
        for state in container["state"].values()
    ]
    return any(each.get("reason") == reason for each in (*events, *states))


def _away_for_minutes(chain: Chain, job: str) -> None:
    """Kill a host whose node is not ready until minutes later."""
    node = _node_of(chain, job)
    _silence(chain, node, silent=True)
    try:
        chain.send_to_pods(signal.SIGKILL, job, _HOST)
        time.sleep(_REPAIR_SECONDS)
        chain.wait(f"no new pod of {job}", lambda: not chain.hosts_run(job), 1)
    finally:
        _silence(chain, node, silent=False)


def _away(number: int) -> Callable[[Chain, str], None]:
    """Lose the pods of a slice whose nodes then refuse pods, until the other slice has trained on without it."""

    def strike(chain: Chain, job: str) -> None:
        paths = [f"{names.NODES}/{name}" for name in _nodes_of_slice(chain, job, number)]
        for path in paths:
            chain.api.patch(path, {"metadata": {"annotations": {BROKEN_ANNOTATION: REFUSES_PODS}}})
        try:
            chain.send_to_pods(signal.SIGKILL, job, f"slice-{number}-0", f"slice-{number}-1")
            chain.wait("an attempt without it", lambda: chain.world(job).slices == [1 - number], _NOTICED_SECONDS)
            chain.wait("its first step", lambda: len(chain.history(job).starts) == 2, _NOTICED_SECONDS)
            chain.wait_for_step(job, max(line["step"] for line in chain.steps(job)) + 1)
        finally:
            for path in paths:
                chain.api.patch(path, {"metadata": {"annotations": {BROKEN_ANNOTATION: None}}})
        chain.wait("an attempt with it", lambda: chain.world(job).slices == [0, 1], _NOTICED_SECONDS)

    return strike


def _nodes_of_slice(chain: Chain, job: str, number: int) -> list[str]:
    return [pod["spec"]["nodeName"] for pod in chain.pods(job) if _name(pod).startswith(f"{job}-slice-{number}-")]


def _slice_away(name: str, what: str, number: int) -> Fault:
    pace = Sabotage("delay", TAKE_STEP, (LEADER, "slice-1-0"), calls=(1, STEPS), start=None, seconds=_SLOW_SECONDS)
    return Fault(
        name,
        what,
        # Fewer slices sum in another order.
        Expected(starts=3, endings=GONE, loss_tolerance=0.01),
        _away(number),
        at_step=BETWEEN_SAVES,
        job={"slices": {"group": "trillium", "count": 2, "min_count": 1, "wait_seconds": 5}},
        edit=add_sabotages(pace),
    )


_SLOW_SECONDS = 4.0
"""Time of a step that leaves enough of the job when the slice is back."""
NODES = (
    _slice_away("slice-away", "a slice is lost for a while, and the other one trains on", 1),
    _slice_away("leader-slice-away", "the leading slice is lost for a while, and the other one trains on", 0),
    between_saves(
        "pod-refused",
        "a host is killed, and its node refuses the next pod",
        Expected(endings=GONE),
        _at_restart(REFUSES_PODS, REFUSED.reason, 0),
    ),
    between_saves(
        "pod-refused-for-minutes",
        "a host is killed, and its node refuses pods for two minutes",
        Expected(endings=GONE, recovery_seconds=_REPAIR_SECONDS + 120),
        _at_restart(REFUSES_PODS, REFUSED.reason, _REPAIR_SECONDS),
    ),
    between_saves(
        "image-not-pulled",
        "a host is killed, and its node cannot pull the image for a minute",
        Expected(endings=GONE, recovery_seconds=_MINUTE_SECONDS + 120),
        _at_restart(PULLS_NO_IMAGES, ImageError.reason, _MINUTE_SECONDS),
    ),
    between_saves(
        "node-not-ready-for-minutes",
        "a host is killed, and its node is not ready for two minutes",
        Expected(endings=GONE, recovery_seconds=_REPAIR_SECONDS + 120),
        _away_for_minutes,
    ),
    between_saves(
        "node-deleted",
        "a Node is deleted and created again",
        PREEMPTED,
        lambda chain, job: _replace(chain, [_node_of(chain, job)]),
    ),
    between_saves("pool-gone", "all nodes of a slice go and come back", PREEMPTED, _delete_pool),
    Fault(
        "node-silent",
        "a node cannot reach the cluster until it counts as unreachable; its host keeps training",
        UNDISTURBED,
        _cut_off,
        at_step=BETWEEN_SAVES,
        edit=add_sabotages(at_least(_STEP_SECONDS)),
    ),
    between_saves(
        "machine-lost",
        "a machine is lost without a signal, and GKE replaces it",
        Expected(charged=0, endings=GONE, recovery_seconds=240),
        _lose_machine,
    ),
)
