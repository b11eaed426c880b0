"""The life of one pod on this machine: start, restart, report, end, and the release of its object.

One thread for each pod, one more for each further container. The API's wishes arrive by `delete`,
`forget` and `evict`, from any thread.
"""

import logging
import math
import shutil
import signal
import threading
import time
from datetime import UTC, datetime

from infra.kubernetes import STRATEGIC_MERGE_PATCH, UNREACHABLE, ApiError
from sandbox.node_agent.container import Machine, container_plan
from sandbox.node_agent.environment import Surroundings
from sandbox.node_agent.leftovers import end_leftovers
from sandbox.node_agent.pod import ConfigError, Json, Pod
from sandbox.node_agent.pod_process import PodProcess, StartError
from sandbox.node_agent.probes import Probing
from sandbox.node_agent.restarts import pauses_seconds
from sandbox.node_agent.status import (
    NODE_RESTARTED,
    ContainerRecord,
    PodReason,
    PodReport,
    lost,
    pod_status,
    running,
    terminated,
    unstartable,
    waiting,
)

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
        self._records: dict[str, ContainerRecord] = {}
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
        """Begin, in a thread of its own."""
        self._thread.start()

    def join(self, timeout_seconds: float) -> None:
        """Wait for the thread's end."""
        self._thread.join(timeout_seconds)

    def delete(self, grace_seconds: float) -> None:
        """The pod is to be deleted: end it within `grace_seconds`, then release its object."""
        self._end(grace_seconds)
        self._delete_object = True
        self._released.set()

    def forget(self) -> None:
        """The pod's object is gone: end what runs at once and report nothing."""
        self._object_gone = True
        self.delete(0)

    def evict(self, reason: PodReason, grace_seconds: float) -> None:
        """The node ends the pod: report it failed with `reason`, unless it has ended already."""
        with self._lock:
            if not self._final:
                self._reason = reason
        self._end(grace_seconds)

    def close(self) -> None:
        """Let the thread end although the pod's object stays."""
        self._released.set()

    def runs(self, container: str) -> bool:
        """Whether the container runs or may run again."""
        return not self._final and container in self._records

    def _live(self) -> None:
        if self.pod.deleting or self.pod.started:
            self._report_lost()
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

    def _report_lost(self) -> None:
        statuses = [*self.pod.status.get("initContainerStatuses", []), *self.pod.status.get("containerStatuses", [])]
        for status in statuses:
            ended = "terminated" in status["state"]
            state: Json = status["state"] if ended else lost(self._started)
            self._records[status["name"]] = ContainerRecord(state, status["lastState"], status["restartCount"])
        if not self.pod.deleting:
            self._reason = NODE_RESTARTED

    def _run_containers(self) -> None:
        for container in self.pod.init_containers:
            self._run_container(container, "Never" if self.pod.restart_policy == "Never" else "OnFailure")
            if self._ending.is_set() or self._records[container["name"]].exit_code != 0:
                return
        first, *others = self.pod.containers
        threads = [
            threading.Thread(target=self._run_container, args=(container, self.pod.restart_policy), daemon=True)
            for container in others
        ]
        for thread in threads:
            thread.start()
        self._run_container(first, self.pod.restart_policy)
        for thread in threads:
            thread.join()

    def _run_container(self, container: Json, restart_policy: str) -> None:
        name = container["name"]
        for restart_count, delay_seconds in enumerate(pauses_seconds()):
            if restart_count:
                self._await_restart(name, restart_count, delay_seconds)
            if self._ending.is_set():
                return
            self._run_once(container)
            code = self._records[name].exit_code
            if self._ending.is_set() or restart_policy == "Never" or (restart_policy == "OnFailure" and code == 0):
                return

    def _await_restart(self, name: str, restart_count: int, delay_seconds: int) -> None:
        ended = self._records[name].state
        if delay_seconds:
            message = f"back-off {delay_seconds}s restarting failed container={name} pod={self.pod.name}"
            self._record(name, ContainerRecord(waiting("CrashLoopBackOff", message), ended, restart_count - 1))
            if self._ending.wait(delay_seconds):
                self._record(name, ContainerRecord(ended, {}, restart_count - 1))
                return
        with self._lock:
            self._records[name] = ContainerRecord(ended, ended, restart_count)

    def _run_once(self, container: Json) -> None:
        """Run the container to its end and record it; a container that cannot be made yet is tried again."""
        name = container["name"]
        before = self._records.get(name, ContainerRecord({}))
        while not self._ending.is_set():
            try:
                process = self._start(container)
            except ConfigError as error:
                state = waiting("CreateContainerConfigError", str(error))
                self._record(name, ContainerRecord(state, before.last_state, before.restart_count))
                self._ending.wait(_CONFIG_RETRY_SECONDS)
                continue
            except StartError as error:
                state = unstartable(str(error), datetime.now(UTC))
                self._record(name, ContainerRecord(state, before.last_state, before.restart_count))
                return
            self._attend(container, process, before)
            return

    def _start(self, container: Json) -> PodProcess:
        try:
            plan = container_plan(container, self._around, self._machine, self._folder)
        except UNREACHABLE as error:
            raise ConfigError(f"the API server could not be asked: {error}") from error
        return PodProcess.start(plan)

    def _attend(self, container: Json, process: PodProcess, before: ContainerRecord) -> None:
        name, started = container["name"], datetime.now(UTC)
        with self._lock:
            self._processes[name] = process
            self._write_pids()
            if self._ending.is_set():
                # Ended while it started: it has missed the signal that the others got.
                late = time.monotonic() >= self._deadline
                process.signal(signal.SIGKILL if late else signal.SIGTERM)
        self._record(name, ContainerRecord(running(started), before.last_state, before.restart_count))
        probing = Probing(container, process, self._around.address, self.pod.grace_seconds)
        probing.start()
        code = process.wait()
        probing.stop()
        with self._lock:
            del self._processes[name]
            self._write_pids()
            state = terminated(code, started, datetime.now(UTC))
            self._records[name] = ContainerRecord(state, before.last_state, before.restart_count)
            others_run = bool(self._processes)
        # The pod's last exit is published once, together with its phase.
        if others_run or self.pod.restart_policy != "Never":
            self._publish()

    def _end(self, grace_seconds: float) -> None:
        deadline = time.monotonic() + grace_seconds
        with self._lock:
            if deadline >= self._deadline:
                # Asked before, as every change of a pod that is being deleted does.
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

    def _record(self, name: str, record: ContainerRecord) -> None:
        with self._lock:
            changed = self._records.get(name) != record
            self._records[name] = record
        if changed:
            self._publish()

    def _publish(self) -> None:
        """Report the pod as it is now; tries until the API server takes it or the pod is gone."""
        with self._publishing:
            while not self._object_gone and not self._publish_once():
                if self._machine.closing.wait(_PUBLISH_RETRY_SECONDS):
                    return

    def _publish_once(self) -> bool:
        if self._cut_off():
            return False
        with self._lock:
            report = PodReport(
                pod=self.pod,
                records=dict(self._records),
                address=self._around.address,
                host_address=self._around.host_address,
                started=self._started,
                final=self._final,
                reason=self._reason,
            )
        body = {"metadata": {"uid": self.pod.uid}, "status": pod_status(report, datetime.now(UTC))}
        try:
            answer = self._machine.api.patch(f"{self.pod.path}/status", body, STRATEGIC_MERGE_PATCH)
        except UNREACHABLE as error:
            # A conflict says that another pod has the name by now.
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
