"""The runs of one container: start, hooks, probes, end, and the next run after kubelet's back-off.

`run` belongs to one thread, which must live as long as the container. `end` may be called from any thread.
"""

import math
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import urllib3

from infra.cluster.kubernetes import UNREACHABLE, Json
from sandbox.node_agent.container import Machine, container_plan
from sandbox.node_agent.environment import ConfigError, Surroundings
from sandbox.node_agent.pod import ContainerRecord, running, waiting
from sandbox.node_agent.pod_process import Plan, PodProcess, StartError, terminated, unstartable

ACTIONS = frozenset({"exec", "httpGet", "tcpSocket", "sleep"})
"""What a probe or hook can do here."""

_PERIOD_SECONDS, _TIMEOUT_SECONDS, _FAILURES, _SUCCESSES = 10, 1, 3, 1
"""Kubelet's defaults for a probe."""


@dataclass
class Probing:
    """Runs the probes of a container, and its hooks on request."""

    _container: Json
    _process: PodProcess
    _address: str
    """Address of the pod."""
    _changed: Callable[[bool, bool], None]
    """Called with whether the container has started, and whether it is ready, when one of them changes."""
    _failed: Callable[[str, float | None], None]
    """Called once with the name of the startup or liveness probe that has failed, and its own grace period."""
    _ended: threading.Event = field(default_factory=threading.Event)

    @property
    def started(self) -> bool:
        """Return whether a container counts as started as soon as it runs."""
        return "startupProbe" not in self._container

    @property
    def ready(self) -> bool:
        """Return whether a container counts as ready as soon as it runs."""
        return self.started and "readinessProbe" not in self._container

    def start(self) -> None:
        """Start probing, in separate threads, if the container has probes."""
        if {"startupProbe", "livenessProbe", "readinessProbe"} & self._container.keys():
            self._in_thread(self._probe)

    def stop(self) -> None:
        self._ended.set()

    def run_hook(self, name: str, timeout_seconds: float | None = None) -> bool:
        """Run the lifecycle hook `postStart` or `preStop`. Return whether it succeeded, or does not exist."""
        hook: Json | None = self._container.get("lifecycle", {}).get(name)
        return hook is None or self._succeeds(hook, timeout_seconds)

    def _in_thread(self, run: Callable[[], None]) -> None:
        threading.Thread(target=run, name=f"probes of {self._container['name']}", daemon=True).start()

    def _probe(self) -> None:
        if not self.started:
            if not next(self._verdicts("startupProbe"), True):
                self._fail("startupProbe")
                return
            self._changed(True, "readinessProbe" not in self._container)
        if "readinessProbe" in self._container:
            self._in_thread(self._probe_readiness)
        if "livenessProbe" in self._container and not all(self._verdicts("livenessProbe")):
            self._fail("livenessProbe")

    def _probe_readiness(self) -> None:
        for ready in self._verdicts("readinessProbe"):
            self._changed(True, ready)

    def _fail(self, kind: str) -> None:
        self._failed(kind, self._container[kind].get("terminationGracePeriodSeconds"))

    def _verdicts(self, kind: str) -> Iterator[bool]:
        """Yield whether the probe has passed or failed, each time it has done so often enough in a row."""
        probe: Json = self._container[kind]
        passes = failures = 0
        self._ended.wait(probe.get("initialDelaySeconds", 0))
        while not self._ended.is_set():
            passed = self._succeeds(probe, probe.get("timeoutSeconds", _TIMEOUT_SECONDS))
            passes, failures = (passes + 1, 0) if passed else (0, failures + 1)
            if passes >= probe.get("successThreshold", _SUCCESSES):
                yield True
            elif failures >= probe.get("failureThreshold", _FAILURES):
                yield False
            self._ended.wait(probe.get("periodSeconds", _PERIOD_SECONDS))

    def _succeeds(self, action: Json, timeout_seconds: float | None) -> bool:
        if command := action.get("exec"):
            return self._command_succeeds(command["command"], timeout_seconds)
        if sleep := action.get("sleep"):
            return not self._ended.wait(sleep["seconds"])
        try:
            if request := action.get("httpGet"):
                return self._request_succeeds(request, timeout_seconds)
            target: Json = action["tcpSocket"]
            address = target.get("host", self._address), self._port(target["port"])
            socket.create_connection(address, timeout_seconds).close()
        except (OSError, urllib3.exceptions.HTTPError):
            return False
        return True

    def _request_succeeds(self, request: Json, timeout_seconds: float | None) -> bool:
        scheme: str = request.get("scheme", "HTTP").lower()
        host: str = request.get("host", self._address)
        url = f"{scheme}://{host}:{self._port(request['port'])}{request.get('path', '/')}"
        headers = {each["name"]: each["value"] for each in request.get("httpHeaders", [])}
        # Like kubelet, this accepts any certificate and no redirect to another host.
        with urllib3.PoolManager(cert_reqs="CERT_NONE", assert_hostname=False) as pool:
            answer = pool.request("GET", url, headers=headers, timeout=timeout_seconds, retries=False)
        return 200 <= answer.status < 400

    def _command_succeeds(self, command: list[str], timeout_seconds: float | None) -> bool:
        try:
            process = self._process.run_inside(command)
        except StartError:
            return False
        late = threading.Timer(timeout_seconds or 0, process.signal, [signal.SIGKILL])
        if timeout_seconds is not None:
            late.start()
        try:
            return process.wait() == 0
        finally:
            late.cancel()

    def _port(self, port: Any) -> int:
        """Return a port by its number, or by its name among those of the container."""
        named = {each.get("name"): each["containerPort"] for each in self._container.get("ports", [])}
        return named.get(port, port)


_CONFIG_RETRY_SECONDS = 2
_MAX_BACKOFF_SECONDS = 300
_RESET_SECONDS = 600
_MESSAGE_BYTES, _LOG_BYTES, _LOG_LINES = 4096, 2048, 80
"""Most that kubelet takes of a message about the end, and of a log in its place."""


@dataclass
class BackOff:
    """The pauses before the restarts of a container, as kubelet makes them."""

    base_seconds: float
    _ends: int = 0

    def pause_seconds(self, ran_seconds: float) -> float:
        """Return how long to wait after a run: not at all after the first one, then ever longer.

        A run of ten minutes counts as the first one again.
        """
        self._ends = 1 if ran_seconds >= _RESET_SECONDS else self._ends + 1
        return 0 if self._ends == 1 else min(self.base_seconds * 2 ** (self._ends - 2), _MAX_BACKOFF_SECONDS)


class ContainerWorker:
    """Runs one container until it has ended for good."""

    def __init__(
        self,
        container: Json,
        around: Surroundings,
        machine: Machine,
        changed: Callable[[], None],
        warn: Callable[[str, str], None],
    ) -> None:
        """`changed` is called when the pod must be reported, and `warn` with the reason and message of an event."""
        self.record = ContainerRecord()
        self.over = False
        """Whether the container does not run again."""
        self.settled = threading.Event()
        """Set when the container has started, or will not start."""
        self._container = container
        self._name: str = container["name"]
        self._around = around
        self._machine = machine
        self._changed = changed
        self._warn = warn
        self._policy = around.pod.restart_policy(container)
        self._process: PodProcess | None = None
        self._probing: Probing | None = None
        self._ending = threading.Event()
        self._deadline = math.inf
        self._lock = threading.RLock()

    @property
    def pid(self) -> int | None:
        process = self._process
        return process and process.pid

    @property
    def ending(self) -> bool:
        return self._ending.is_set()

    def run(self) -> None:
        backoff = BackOff(self._machine.restart_seconds)
        while not self.ending:
            ran_seconds = self._run_once()
            if self.ending or self._policy == "Never" or (self._policy == "OnFailure" and self.record.exit_code == 0):
                break
            self._await_restart(backoff.pause_seconds(ran_seconds))
        self.over = True
        self.settled.set()
        self._changed()

    def end(self, grace_seconds: float) -> None:
        deadline = time.monotonic() + grace_seconds
        with self._lock:
            if deadline >= self._deadline:
                # Every change of a pod that is being deleted calls this again.
                return
            first = not self.ending
            self._deadline = deadline
            self._ending.set()
            if not grace_seconds:
                self._signal(signal.SIGKILL)
            elif first:
                self._ask_to_end(grace_seconds)
        if grace_seconds:
            later(grace_seconds, self._signal, signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            if self._process:
                self._process.signal(number)

    def _ask_to_end(self, grace_seconds: float) -> None:
        """Send SIGTERM, after the preStop hook if there is one."""
        with self._lock:
            process, probing = self._process, self._probing
        if process is None or probing is None:
            return

        def end() -> None:
            if not probing.run_hook("preStop", grace_seconds):
                self._warn("FailedPreStopHook", f"The preStop hook of container {self._name} failed.")
            process.signal(signal.SIGTERM)

        if "preStop" in self._container.get("lifecycle", {}):
            threading.Thread(target=end, name=f"preStop of {self._name}", daemon=True).start()
        else:
            process.signal(signal.SIGTERM)

    def _end_run(self, reason: str, message: str, grace_seconds: float | None = None) -> None:
        """End the current run because of a probe or hook. The restart policy decides about another run."""
        grace = self._around.pod.grace_seconds if grace_seconds is None else grace_seconds
        with self._lock:
            process = self._process
        if process:
            self._ask_to_end(grace)
            later(grace, process.signal, signal.SIGKILL)
        self._warn(reason, message)

    def _await_restart(self, pause_seconds: float) -> None:
        before = self.record
        if pause_seconds:
            message = f"back-off {pause_seconds:g}s restarting container {self._name} of pod {self._around.pod.name}"
            self._update(state=waiting("CrashLoopBackOff", message), last_state=before.state)
            self._warn("BackOff", f"Container {self._name} restarts in {pause_seconds:g} s because it has ended.")
            if self._ending.wait(pause_seconds):
                self.record = before
                return
        self.record = replace(before, last_state=before.state, restarts=before.restarts + 1)

    def _run_once(self) -> float:
        """Run the container to its end, record that, and return how many seconds it ran.

        Retries while its configuration is incomplete.
        """
        while not self.ending:
            try:
                plan = container_plan(self._container, self._around, self._machine)
                process = PodProcess.start(plan)
            except (ConfigError, *UNREACHABLE) as error:
                if not isinstance(error, ConfigError):
                    error = ConfigError(f"the API server does not answer: {error}")
                state = waiting(error.reason, str(error))
                if state != self.record.state:
                    self._update(state=state)
                    self._warn("Failed", f"Container {self._name} waits for its {error.wants}: {error}.")
                self._ending.wait(_CONFIG_RETRY_SECONDS)
            except StartError as error:
                self.record = replace(self.record, state=unstartable(str(error), datetime.now(UTC)))
                return 0
            else:
                began = time.monotonic()
                self._attend(plan, process)
                return time.monotonic() - began
        return 0

    def _attend(self, plan: Plan, process: PodProcess) -> None:
        started = datetime.now(UTC)
        probing = Probing(self._container, process, self._around.address, self._probed, self._probe_failed)
        with self._lock:
            self._process, self._probing = process, probing
            if self.ending:
                # It missed the signal that the other containers received while it started.
                late = time.monotonic() >= self._deadline
                process.signal(signal.SIGKILL if late else signal.SIGTERM)
        if probing.run_hook("postStart"):
            self._update(state=running(started), started=probing.started, ready=probing.ready)
            probing.start()
        else:
            self._end_run("FailedPostStartHook", f"The postStart hook of container {self._name} failed.")
        code = process.wait()
        probing.stop()
        with self._lock:
            self._process = self._probing = None
            end = terminated(code, started, datetime.now(UTC), self._last_words(plan, code))
            self.record = replace(self.record, state=end, started=False, ready=False)

    def _last_words(self, plan: Plan, code: int) -> str:
        """Return the program's own message about its end, or the end of its log if the container says so."""
        left = plan.message.read_bytes()[:_MESSAGE_BYTES]
        if not left and code and self._container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            left = b"".join(_end_of(plan.log).splitlines(keepends=True)[-_LOG_LINES:])
        return left.decode(errors="replace")

    def _probed(self, started: bool, ready: bool) -> None:
        self._update(only_while_running=True, started=started, ready=ready)

    def _probe_failed(self, kind: str, grace_seconds: float | None) -> None:
        self._end_run("Unhealthy", f"Container {self._name} is ended because its {kind} failed.", grace_seconds)

    def _update(self, *, only_while_running: bool = False, **changes: Any) -> None:
        with self._lock:
            before = self.record
            if only_while_running and not before.running:
                return
            self.record = after = replace(before, **changes)
        if after.started:
            self.settled.set()
        if after != before:
            self._changed()


def later(seconds: float, act: Callable[..., object], *arguments: object) -> None:
    """Call `act` after some seconds, if this process then still runs."""
    timer = threading.Timer(seconds, act, arguments)
    timer.daemon = True
    timer.start()


def _end_of(log: Path) -> bytes:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _LOG_BYTES))
        return file.read()
