"""The node agent: keeps the sandbox's nodes Ready and gives each pod that is bound to them a worker.

Images are ignored: every container is a program of this machine that imports the checkout's modules. `pod_worker` runs
one pod, and `unsupported` names what a pod may not have.
"""

import logging
import shutil
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from infra.cluster.kubernetes import APPLY_PATCH, STRATEGIC_MERGE_PATCH, UNREACHABLE, ApiServer, Json, Watch
from infra.stack.names import NODES
from sandbox.node_agent.container import Machine, PodNames, object_lookup, pod_token
from sandbox.node_agent.environment import Surroundings
from sandbox.node_agent.kubelet_server import KubeletServer, LogTimes
from sandbox.node_agent.pod import NODE_SHUTDOWN, Pod, timestamp
from sandbox.node_agent.pod_process import end_leftovers, start_reaper
from sandbox.node_agent.pod_worker import PodWorker
from sandbox.site import BROKEN_ANNOTATION, NODE_LABEL, SILENT_ANNOTATION, Site, administrator

log = logging.getLogger(__name__)

_RENEW_SECONDS = 10
_DURATION_SECONDS = 40


class Leases:
    """Keeps the announced nodes Ready: a status patch when one is not, and a Lease every ten seconds.

    Nodes whose machine is cut off (`SILENT_ANNOTATION`) get neither.
    """

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._nodes: dict[str, Json] = {}
        self._unconfirmed: set[str] = set()
        self._wake = threading.Event()

    def announce(self, node: Json) -> None:
        uid = node["metadata"]["uid"]
        if uid not in self._nodes or not _ready(node):
            # A Lease does not revive a node that was declared Unknown. Its status must be patched.
            self._unconfirmed.add(uid)
            self._wake.set()
        self._nodes[uid] = node

    def retire(self, node: Json) -> None:
        """Forget a node. Its Lease is deleted with it, through its owner reference."""
        self._nodes.pop(node["metadata"]["uid"], None)

    def run(self, closing: threading.Event) -> None:
        """Renew until `closing` is set and `stop_waiting` was called."""
        while not closing.is_set():
            self._wake.clear()
            # A copy, because the thread that watches nodes changes the dictionary.
            for uid, node in [(uid, node) for uid, node in list(self._nodes.items()) if not is_silent(node)]:
                try:
                    self._renew(uid, node)
                except UNREACHABLE as error:
                    log.warning("lease of node %s: %s", node["metadata"]["name"], error)
            self._wake.wait(_RENEW_SECONDS)

    def stop_waiting(self) -> None:
        """Make `run` check its `closing` event now."""
        self._wake.set()

    def _renew(self, uid: str, node: Json) -> None:
        name, now = node["metadata"]["name"], datetime.now(UTC)
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"
        query = {"fieldManager": "sandbox-node-agent", "force": "true"}
        self._api.request("PATCH", path, _lease(name, uid, now), query, APPLY_PATCH)
        if uid in self._unconfirmed:
            condition = {
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "message": "the sandbox's node agent runs the pods of this node",
                "lastHeartbeatTime": timestamp(now),
                "lastTransitionTime": timestamp(now),
            }
            self._api.patch(f"{NODES}/{name}/status", {"status": {"conditions": [condition]}}, STRATEGIC_MERGE_PATCH)
            self._unconfirmed.discard(uid)


def is_silent(node: Json) -> bool:
    """Return whether the node's machine is cut off."""
    return SILENT_ANNOTATION in node["metadata"].get("annotations", {})


def _ready(node: Json) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _lease(node: str, node_uid: str, now: datetime) -> Json:
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node, "namespace": "kube-node-lease", "ownerReferences": [owner]},
        "spec": {
            "holderIdentity": node,
            "leaseDurationSeconds": _DURATION_SECONDS,
            "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }


_SHUTDOWN_GRACE_SECONDS = 5
_CHECK_SECONDS = 1


class NodeAgent:
    """Runs the pods of one site's nodes."""

    def __init__(self, site: Site, python: Path, checkout: Path) -> None:
        self._site = site
        self._machine = Machine(
            site=site,
            python=python,
            checkout=checkout,
            api=administrator(site),
            names=PodNames(site),
            closing=threading.Event(),
        )
        self._leases = Leases(self._machine.api)
        self._nodes: dict[str, Json] = {}
        self._pods: dict[str, Pod] = {}
        self._workers: dict[str, PodWorker] = {}
        self._lock = threading.RLock()

    def run(self, stop: threading.Event) -> None:
        """Run pods until `stop` is set; then end all of them and report them failed.

        Raises RuntimeError if one of the agent's own threads has ended.
        """
        times = LogTimes(self._site.logs / "pods")
        server = KubeletServer(self._site, self._runs, times)
        # Before the first request to the API, because a pod that was never reported is simply started again.
        end_leftovers(self._site.pods)
        shutil.rmtree(self._site.pods, ignore_errors=True)
        self._site.pods.mkdir(parents=True)
        reaper = start_reaper(self._site.pods)
        api = self._machine.api
        nodes = Watch(api, NODES, {"labelSelector": NODE_LABEL}, self._node_changed, self._node_removed)
        pods = Watch(api, "/api/v1/pods", {"fieldSelector": "spec.nodeName!="}, self._pod_changed, self._pod_removed)
        runs: dict[str, Callable[[], None]] = {
            "nodes": nodes.run,
            "pods": pods.run,
            "leases": lambda: self._leases.run(self._machine.closing),
            "kubelet server": server.serve_forever,
            "log times": lambda: times.run(self._machine.closing),
        }
        threads = [threading.Thread(target=run, name=f"node agent: {name}", daemon=True) for name, run in runs.items()]
        for thread in threads:
            thread.start()
        try:
            while not stop.wait(_CHECK_SECONDS):
                if ended := [thread.name for thread in threads if not thread.is_alive()]:
                    raise RuntimeError(f"thread {ended[0]!r} has ended; its traceback is on stderr")
        finally:
            nodes.close()
            pods.close()
            self._end_all()
            server.shutdown()
            server.server_close()
            reaper.communicate()

    def _node_changed(self, node: Json) -> None:
        name = node["metadata"]["name"]
        self._leases.announce(node)
        with self._lock:
            known_before = name in self._nodes and name not in self._machine.silent
            self._nodes[name] = node
            self._machine.broken[name] = node["metadata"].get("annotations", {}).get(BROKEN_ANNOTATION, "")
            if is_silent(node):
                self._machine.silent.add(name)
                return
            self._machine.silent.discard(name)
            if not known_before:
                for worker in [each for each in self._workers_of(name) if each.pod.uid not in self._pods]:
                    self._forget(worker)
                for pod in [pod for pod in self._pods.values() if pod.node == name]:
                    self._dispatch(pod)

    def _node_removed(self, node: Json) -> None:
        name = node["metadata"]["name"]
        self._leases.retire(node)
        with self._lock:
            self._nodes.pop(name, None)
            self._machine.broken.pop(name, None)
            for worker in self._workers_of(name):
                if name in self._machine.silent:
                    # The machine disappeared without a signal. A new machine of that name does not know its pods.
                    self._forget(worker)
                else:
                    worker.evict(NODE_SHUTDOWN, worker.pod.grace_seconds)
            self._machine.silent.discard(name)

    def _pod_changed(self, manifest: Json) -> None:
        pod = Pod(manifest)
        with self._lock:
            self._pods[pod.uid] = pod
            self._dispatch(pod)

    def _pod_removed(self, manifest: Json) -> None:
        pod = Pod(manifest)
        with self._lock:
            self._pods.pop(pod.uid, None)
            worker = self._workers.get(pod.uid)
            if worker is None:
                self._machine.names.remove(pod)
            elif pod.node not in self._machine.silent:
                self._forget(worker)

    def _forget(self, worker: PodWorker) -> None:
        del self._workers[worker.pod.uid]
        worker.forget()
        self._machine.names.remove(worker.pod)

    def _workers_of(self, node: str) -> list[PodWorker]:
        return [worker for worker in self._workers.values() if worker.pod.node == node]

    def _dispatch(self, pod: Pod) -> None:
        worker = self._workers.get(pod.uid)
        if pod.node in self._machine.silent or (worker is None and pod.node not in self._nodes):
            return
        self._machine.names.update(pod)
        if worker is None and (pod.deleting or not pod.ended):
            around = Surroundings(
                pod=pod,
                node=self._nodes[pod.node],
                address=self._site.pod_address(pod.namespace, pod.name),
                host_address=self._site.address,
                lookup=object_lookup(self._machine.api, pod.namespace),
                token=lambda source: pod_token(self._machine.api, pod, source),
            )
            worker = self._workers[pod.uid] = PodWorker(self._machine, around)
            worker.start()
        if worker is not None and pod.deleting:
            worker.delete(pod.grace_seconds)

    def _runs(self, namespace: str, pod_name: str, container: str) -> bool:
        with self._lock:
            named = [w for w in self._workers.values() if (w.pod.namespace, w.pod.name) == (namespace, pod_name)]
        return any(worker.runs(container) for worker in named)

    def _end_all(self) -> None:
        with self._lock:
            workers = list(self._workers.values())
        for worker in workers:
            worker.evict(NODE_SHUTDOWN, min(_SHUTDOWN_GRACE_SECONDS, worker.pod.grace_seconds))
        self._machine.closing.set()
        self._leases.stop_waiting()
        for worker in workers:
            worker.close()
            worker.join(_SHUTDOWN_GRACE_SECONDS + 1)
