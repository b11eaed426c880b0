"""The life of one pod on this machine: start, report, end, and release of its object.

A container runs once, as with the restart policy Never. Each pod has one thread, plus one for each additional
container. `delete`, `forget` and `evict` may be called from any thread.
"""

import logging
import math
import shutil
import signal
import threading
import time
from datetime import UTC, datetime

from infra.kubernetes import STRATEGIC_MERGE_PATCH, UNREACHABLE, ApiError, Json
from sandbox.node_agent.container import Machine, container_plan
from sandbox.node_agent.environment import Surroundings
from sandbox.node_agent.pod import (
    NODE_RESTARTED,
    ConfigError,
    Pod,
    PodReason,
    exit_code,
    lost,
    pod_status,
    running,
    terminated,
    unstartable,
    waiting,
)
from sandbox.node_agent.pod_process import PodProcess, Probing, StartError, end_leftovers

log = logging.getLogger(__name__)

_CONFIG_RETRY_SECONDS = 2
_PUBLISH_RETRY_SECONDS = 1


class PodWorker:
    """Runs one pod until its object is gone."""

    def __init__(self, machine: Machine, around: Surroundings) -> None:
        self.pod: Pod = around.pod
        self._machine = machine
        self._around = around
        self._folder = machine.site.pods / self.pod.folder_name
        self._started = datetime.now(UTC)
        self._states: dict[str, Json] = {}
        self._processes: dict[str, PodProcess] = {}
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
        """Return whether the container has been started and the pod has not ended."""
        return not self._final and container in self._states

    def _live(self) -> None:
        if self.pod.deleting or self.pod.started:
            # Its processes ended with the node agent before this one.
            for status in self.pod.container_statuses:
                ended = "terminated" in status["state"]
                self._states[status["name"]] = status["state"] if ended else lost(self._started)
            if not self.pod.deleting:
                self._reason = NODE_RESTARTED
        else:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._machine.names.create(self.pod)
            self._run_containers()
        with self._lock:
            self._final = True
        if not self.pod.ended:
            self._publish()
        end_leftovers(self._folder)
        self._released.wait()
        self._release_object()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run_containers(self) -> None:
        for container in self.pod.init_containers:
            self._run(container)
            if self._ending.is_set() or exit_code(self._states[container["name"]]) != 0:
                return
        first, *others = self.pod.containers
        threads = [threading.Thread(target=self._run, args=(container,), daemon=True) for container in others]
        for thread in threads:
            thread.start()
        self._run(first)
        for thread in threads:
            thread.join()

    def _run(self, container: Json) -> None:
        """Run the container to its end and record that; retry while its configuration is incomplete."""
        name = container["name"]
        while not self._ending.is_set():
            try:
                process = self._start(container)
            except ConfigError as error:
                self._record(name, waiting("CreateContainerConfigError", str(error)))
                self._ending.wait(_CONFIG_RETRY_SECONDS)
                continue
            except StartError as error:
                self._record(name, unstartable(str(error), datetime.now(UTC)))
                return
            self._attend(container, process)
            return

    def _start(self, container: Json) -> PodProcess:
        try:
            plan = container_plan(container, self._around, self._machine, self._folder)
        except UNREACHABLE as error:
            raise ConfigError(f"the API server does not answer: {error}") from error
        return PodProcess.start(plan)

    def _attend(self, container: Json, process: PodProcess) -> None:
        name, started = container["name"], datetime.now(UTC)
        with self._lock:
            self._processes[name] = process
            self._write_pids()
            if self._ending.is_set():
                # It missed the signal that the other containers received while it started.
                late = time.monotonic() >= self._deadline
                process.signal(signal.SIGKILL if late else signal.SIGTERM)
        self._record(name, running(started))
        probing = Probing(container, process, self._around.address, self.pod.grace_seconds)
        probing.start()
        code = process.wait()
        probing.stop()
        with self._lock:
            del self._processes[name]
            self._write_pids()
            self._states[name] = terminated(code, started, datetime.now(UTC))
            others_run = bool(self._processes)
        # The pod's last exit is published once, together with its phase.
        if others_run:
            self._publish()

    def _end(self, grace_seconds: float) -> None:
        deadline = time.monotonic() + grace_seconds
        with self._lock:
            if deadline >= self._deadline:
                # Every change of a pod that is being deleted calls this again.
                return
            first = not self._ending.is_set()
            self._deadline = deadline
            self._ending.set()
            if not grace_seconds:
                self._signal(signal.SIGKILL)
            elif first:
                self._signal(signal.SIGTERM)
        if grace_seconds:
            timer = threading.Timer(grace_seconds, self._signal, [signal.SIGKILL])
            timer.daemon = True
            timer.start()

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            for process in self._processes.values():
                process.signal(number)

    def _write_pids(self) -> None:
        pids = self._folder / "pid"
        if self._processes:
            pids.write_text("".join(f"{process.pid}\n" for process in self._processes.values()))
        else:
            pids.unlink(missing_ok=True)

    def _record(self, name: str, state: Json) -> None:
        with self._lock:
            changed = self._states.get(name) != state
            self._states[name] = state
        if changed:
            self._publish()

    def _publish(self) -> None:
        """Report the pod's state; retry until the API server accepts it or the pod is gone."""
        with self._publishing:
            while not self._object_gone and not self._publish_once():
                if self._machine.closing.wait(_PUBLISH_RETRY_SECONDS):
                    return

    def _publish_once(self) -> bool:
        if self._cut_off():
            return False
        with self._lock:
            status = pod_status(
                self.pod,
                self._states,
                address=self._around.address,
                host_address=self._around.host_address,
                started=self._started,
                final=self._final,
                reason=self._reason,
                now=datetime.now(UTC),
            )
        body = {"metadata": {"uid": self.pod.uid}, "status": status}
        try:
            answer = self._machine.api.patch(f"{self.pod.path}/status", body, STRATEGIC_MERGE_PATCH)
        except UNREACHABLE as error:
            # A conflict means that another pod has the name by now.
            replaced = isinstance(error, ApiError) and error.status == 409
            log.log(logging.DEBUG if replaced else logging.WARNING, "status of pod %s: %s", self.pod.name, error)
            return replaced
        if answer is not None:
            self.pod = Pod(answer)
        return True

    def _release_object(self) -> None:
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self.pod.uid}}
        while self._delete_object and not self._object_gone:
            try:
                if not self._cut_off():
                    self._machine.api.delete(self.pod.path, options)
                    return
            except UNREACHABLE as error:
                if isinstance(error, ApiError) and error.status == 409:
                    return
                log.warning("deletion of pod %s: %s", self.pod.name, error)
            if self._machine.closing.wait(_PUBLISH_RETRY_SECONDS):
                return

    def _cut_off(self) -> bool:
        return self.pod.node in self._machine.silent
