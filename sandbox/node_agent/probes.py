"""The probes and lifecycle hooks of one running container: commands, HTTP requests and connections."""

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import urllib3

from infra.cluster.kubernetes import Json
from sandbox.node_agent.pod_process import PodProcess, StartError

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
