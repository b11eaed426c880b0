"""The life of one pod on this machine: start, report, end, and release of its object.

Each pod has one thread, plus one for each additional container. `delete`, `forget` and `evict` may be called from any
thread.
"""

import logging
import math
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain

from infra.cluster.kubernetes import STRATEGIC_MERGE_PATCH, UNREACHABLE, ApiError, Json
from infra.stack.names import EVENTS
from sandbox.node_agent.container import Machine
from sandbox.node_agent.container_worker import ACTIONS, ContainerWorker, later
from sandbox.node_agent.environment import Surroundings
from sandbox.node_agent.pod import (
    DEADLINE_EXCEEDED,
    NODE_RESTARTED,
    REFUSED,
    ContainerRecord,
    Pod,
    PodReason,
    is_sidecar,
    lost,
    pod_event,
    pod_status,
    waiting,
)
from sandbox.node_agent.pod_process import end_leftovers
from sandbox.site import REFUSES_PODS

log = logging.getLogger(__name__)

_PUBLISH_RETRY_SECONDS = 1

_POD_FIELDS = ("dnsConfig", "hostAliases", "readinessGates", "resourceClaims", "setHostnameAsFQDN")
_CONTAINER_FIELDS = ("restartPolicyRules", "volumeDevices")
_MOUNT_FIELDS = ("mountPropagation", "recursiveReadOnly", "subPathExpr")
_PROBES = ("startupProbe", "livenessProbe", "readinessProbe")
_VARIABLES = {"fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef"}
_SOURCES = {"configMap", "secret", "downwardAPI", "serviceAccountToken"}
_VOLUMES = {"emptyDir", "configMap", "secret", "downwardAPI", "projected"}
"""Fields that are not supported in pods, containers and mounts, then the probes and the sources that are supported."""


class PodWorker:
    """Runs one pod until its object is gone."""

    def __init__(self, machine: Machine, around: Surroundings) -> None:
        self.pod: Pod = around.pod
        self._machine = machine
        self._around = around
        self._folder = machine.site.pods / self.pod.folder_name
        self._started = datetime.now(UTC)
        self._workers = {
            container["name"]: ContainerWorker(container, around, machine, self._changed, self._warn)
            for container in (*self.pod.containers, *self.pod.init_containers)
        }
        self._sidecars_stay = False
        """Whether the other containers run, which sidecars outlive."""
        self._reason: PodReason | None = None
        self._final = False
        self._ending = threading.Event()
        self._released = threading.Event()
        self._delete_object = False
        self._object_gone = False
        self._deadline = math.inf
        self._lock = threading.RLock()
        self._publishing = threading.Lock()
        self._thread = threading.Thread(target=self._live, name=self.pod.folder_name, daemon=True)

    def start(self) -> None:
        self._thread.start()
        if seconds := self.pod.spec.get("activeDeadlineSeconds"):
            later(seconds, self.evict, DEADLINE_EXCEEDED, self.pod.grace_seconds)

    def join(self, timeout_seconds: float) -> None:
        self._thread.join(timeout_seconds)

    def delete(self, grace_seconds: float) -> None:
        """End the pod within `grace_seconds`, then release its object, whose deletion was requested."""
        self._end(grace_seconds)
        self._delete_object = True
        self._released.set()

    def forget(self) -> None:
        """Kill what runs and report nothing, because the pod's object is gone."""
        self._object_gone = True
        self.delete(0)

    def evict(self, reason: PodReason, grace_seconds: float) -> None:
        """End the pod on behalf of the node and report it failed with `reason`, unless it has ended already."""
        with self._lock:
            if not self._final:
                self._reason = reason
        self._end(grace_seconds)

    def close(self) -> None:
        """Let the thread end although the pod's object still exists."""
        self._released.set()

    def runs(self, container: str) -> bool:
        """Return whether the container has been started and may still write to its log."""
        worker = self._workers.get(container)
        return not self._final and worker is not None and not worker.over and worker.record != ContainerRecord()

    def _live(self) -> None:
        if self.pod.deleting or self.pod.started:
            self._report_lost()
        else:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._machine.names.create(self.pod)
            if self._machine.broken.get(self.pod.node) == REFUSES_PODS:
                self._reason = REFUSED
                self._warn(REFUSED.reason, REFUSED.message.removeprefix("Pod was rejected: "))
            elif refusal := unsupported(self.pod):
                self._refuse(refusal)
            else:
                self._run_containers()
        with self._lock:
            self._final = True
        if not self.pod.ended:
            self._publish()
        end_leftovers(self._folder)
        self._released.wait()
        self._release_object()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _report_lost(self) -> None:
        """Take over the records of a pod whose processes ended with the node agent before this one."""
        for status in self.pod.container_statuses:
            state = status["state"] if "terminated" in status["state"] else lost(self._started)
            record = ContainerRecord(state, status.get("lastState") or {}, status.get("restartCount", 0))
            self._workers[status["name"]].record = record
        if not self.pod.deleting:
            self._reason = NODE_RESTARTED

    def _refuse(self, message: str) -> None:
        """Report what is not supported, and keep the pod until it is deleted.

        It does not fail, because its Job would replace it at once, again and again.
        """
        for worker in self._workers.values():
            worker.record = ContainerRecord(waiting("Unsupported", message))
        self._publish()
        self._warn("Unsupported", message)
        self._ending.wait()

    def _run_containers(self) -> None:
        sidecars: list[tuple[ContainerWorker, threading.Thread]] = []
        try:
            for container in self.pod.init_containers:
                worker = self._workers[container["name"]]
                if is_sidecar(container):
                    sidecars.append((worker, _in_thread(worker.run)))
                    worker.settled.wait()
                else:
                    worker.run()
                    if worker.record.exit_code != 0:
                        return
                if self._ending.is_set():
                    return
            self._run_together([self._workers[container["name"]] for container in self.pod.containers])
        finally:
            for worker, thread in reversed(sidecars):
                worker.end(min(self.pod.grace_seconds, max(0.0, self._deadline - time.monotonic())))
                thread.join()

    def _run_together(self, workers: Sequence[ContainerWorker]) -> None:
        with self._lock:
            self._sidecars_stay = not self._ending.is_set()
        first, *others = workers
        threads = [_in_thread(worker.run) for worker in others]
        first.run()
        for thread in threads:
            thread.join()

    def _end(self, grace_seconds: float) -> None:
        with self._lock:
            self._deadline = min(self._deadline, time.monotonic() + grace_seconds)
            self._ending.set()
            later = self.pod.init_containers if self._sidecars_stay and grace_seconds else []
        # Sidecars end after the others, in `_run_containers`.
        for container in self.pod.all_containers:
            worker = self._workers[container["name"]]
            if container not in later or worker.ending:
                worker.end(grace_seconds)

    def _changed(self) -> None:
        with self._lock:
            pids = [worker.pid for worker in self._workers.values() if worker.pid is not None]
            file = self._folder / "pid"
            if pids:
                file.write_text("".join(f"{pid}\n" for pid in pids))
            else:
                file.unlink(missing_ok=True)
        # The pod's last exit is published once, together with its phase.
        if not all(worker.over for worker in self._workers.values()):
            self._publish()

    def _warn(self, reason: str, message: str) -> None:
        """Create an event about the pod, if the API server can be reached."""
        if self._cut_off() or self._object_gone:
            return
        try:
            event = pod_event(self.pod, reason, message, datetime.now(UTC))
            self._machine.api.request("POST", EVENTS.format(self.pod.namespace), event)
        except UNREACHABLE as error:
            log.warning("event of pod %s: %s (%s)", self.pod.name, message, error)

    def _publish(self) -> None:
        """Report the pod's state; retry until the API server accepts it or the pod is gone."""
        with self._publishing:
            self._retry("status", self._publish_once)

    def _publish_once(self) -> None:
        with self._lock:
            status = pod_status(
                self.pod,
                {name: worker.record for name, worker in self._workers.items()},
                address=self._around.address,
                host_address=self._around.host_address,
                started=self._started,
                final=self._final,
                reason=self._reason,
                now=datetime.now(UTC),
            )
        body = {"metadata": {"uid": self.pod.uid}, "status": status}
        if (answer := self._machine.api.patch(f"{self.pod.path}/status", body, STRATEGIC_MERGE_PATCH)) is not None:
            self.pod = Pod(answer)

    def _release_object(self) -> None:
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.pod.uid}}
        if self._delete_object:
            self._retry("deletion", lambda: self._machine.api.delete(self.pod.path, options))

    def _retry(self, what: str, request: Callable[[], None]) -> None:
        """Send a request about the pod until the API server accepts it, the pod is gone, or the agent ends."""
        while not self._object_gone:
            try:
                if not self._cut_off():
                    request()
                    return
            except UNREACHABLE as error:
                # A conflict means that another pod has the name by now.
                replaced = isinstance(error, ApiError) and error.status == 409
                log.log(logging.DEBUG if replaced else logging.WARNING, "%s of pod %s: %s", what, self.pod.name, error)
                if replaced:
                    return
            if self._machine.closing.wait(_PUBLISH_RETRY_SECONDS):
                return

    def _cut_off(self) -> bool:
        return self.pod.node in self._machine.silent


def _in_thread(run: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def unsupported(pod: Pod) -> str | None:
    """Return a sentence that names the fields of the pod that are not supported; None if all are."""
    found = ", ".join(chain(_unsupported_in_pod(pod), *map(_unsupported_in_container, pod.all_containers)))
    return f"The sandbox does not run this pod because it does not support {found}." if found else None


def _unsupported_in_pod(pod: Pod) -> Iterator[str]:
    yield from (name for name in _POD_FIELDS if pod.spec.get(name))
    for volume in pod.spec.get("volumes", []):
        kinds = volume.keys() - {"name"} - _VOLUMES
        for source in volume.get("projected", {}).get("sources", []):
            kinds |= source.keys() - _SOURCES
        if kinds:
            yield f"volume {volume['name']!r} of kind {' and '.join(sorted(kinds))}"


def _unsupported_in_container(container: Json) -> Iterator[str]:
    of = f"of container {container['name']!r}"
    if not container.get("command"):
        yield f"the entry point {of}, because images are not run here and it has no command"
    yield from (f"{name} {of}" for name in _CONTAINER_FIELDS if container.get(name))
    for mount in container.get("volumeMounts", []):
        fields = [name for name in _MOUNT_FIELDS if mount.get(name) not in (None, "None", "Disabled")]
        yield from (f"{name} of mount {mount['mountPath']!r} {of}" for name in fields)
    for variable in container.get("env", []):
        for kind in (variable.get("valueFrom") or {}).keys() - _VARIABLES:
            yield f"{kind} of variable {variable['name']!r} {of}"
    lifecycle: Json = container.get("lifecycle", {})
    if "stopSignal" in lifecycle:
        yield f"stopSignal {of}"
    checks = {name: container[name] for name in _PROBES if name in container}
    hooks = {name: lifecycle[name] for name in ("postStart", "preStop") if name in lifecycle}
    yield from (f"the action of {name} {of}" for name, check in (checks | hooks).items() if not ACTIONS & check.keys())
