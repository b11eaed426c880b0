"""The node agent: sees pods and nodes come and go, and gives each pod a worker.

Owns which pods are run here: those bound to the sandbox's nodes. How a pod lives is in
`pod_worker`. A running container is ready: readiness probes are not asked. Images are not run: every
container is a program of this machine that finds the checkout's modules.
"""

import logging
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from infra.kubernetes import Json, Watch
from infra.names import NODES
from sandbox.access import administrator
from sandbox.node_agent.container import Machine, object_lookup, pod_token
from sandbox.node_agent.environment import Surroundings
from sandbox.node_agent.kubelet_server import KubeletServer
from sandbox.node_agent.leases import Leases, is_silent
from sandbox.node_agent.leftovers import end_leftovers, start_reaper
from sandbox.node_agent.log_times import LogTimes
from sandbox.node_agent.names import PodNames
from sandbox.node_agent.pod import Pod
from sandbox.node_agent.pod_worker import PodWorker
from sandbox.node_agent.status import NODE_SHUTDOWN
from sandbox.site import NODE_LABEL, Site

log = logging.getLogger(__name__)

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
        """Run pods until `stop` is set; then end them all and report them failed.

        Raises:
            RuntimeError: one of the agent's own threads has died.
        """
        times = LogTimes(self._site.logs / "pods")
        server = KubeletServer(self._site, self._runs, times)
        # Before the first look at the API: a pod that was never reported is simply started anew.
        end_leftovers(self._site.pods)
        shutil.rmtree(self._site.pods, ignore_errors=True)
        self._site.pods.mkdir(parents=True)
        reaper = start_reaper(self._site.pods)
        api = self._machine.api
        nodes = Watch(api, NODES, {"labelSelector": NODE_LABEL}, self._node_changed, self._node_removed)
        pods = Watch(api, "/api/v1/pods", {"fieldSelector": "spec.nodeName!="}, self._pod_changed, self._pod_removed)
        threads = [
            _thread("nodes", nodes.run),
            _thread("pods", pods.run),
            _thread("leases", lambda: self._leases.run(self._machine.closing)),
            _thread("kubelet server", server.serve_forever),
            _thread("log times", lambda: times.run(self._machine.closing)),
        ]
        try:
            while not stop.wait(_CHECK_SECONDS):
                _check_alive(threads)
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
            heard_before = name in self._nodes and name not in self._machine.silent
            self._nodes[name] = node
            if is_silent(node):
                self._machine.silent.add(name)
                return
            self._machine.silent.discard(name)
            if not heard_before:
                for worker in [each for each in self._workers_of(name) if each.pod.uid not in self._pods]:
                    self._forget(worker)
                for pod in [pod for pod in self._pods.values() if pod.node == name]:
                    self._dispatch(pod)

    def _node_removed(self, node: Json) -> None:
        name = node["metadata"]["name"]
        self._leases.retire(node)
        with self._lock:
            self._nodes.pop(name, None)
            for worker in self._workers_of(name):
                if name in self._machine.silent:
                    # The machine went without a word. Who comes back under its name knows nothing of its pods.
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
            worker = PodWorker(self._machine, self._surroundings(pod))
            self._workers[pod.uid] = worker
            worker.start()
        if worker is not None and pod.deleting:
            worker.delete(pod.grace_seconds)

    def _surroundings(self, pod: Pod) -> Surroundings:
        return Surroundings(
            pod=pod,
            node=self._nodes[pod.node],
            address=self._site.pod_address(pod.namespace, pod.name),
            host_address=self._site.address,
            lookup=object_lookup(self._machine.api, pod.namespace),
            token=lambda source: pod_token(self._machine.api, pod, source),
        )

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


def _thread(name: str, target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, name=f"node agent: {name}", daemon=True)
    thread.start()
    return thread


def _check_alive(threads: list[threading.Thread]) -> None:
    for thread in threads:
        if not thread.is_alive():
            raise RuntimeError(f"thread {thread.name!r} has ended; its traceback is on stderr")
