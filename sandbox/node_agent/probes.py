"""Startup and liveness probes of a container, as kubelet asks them: by a connection, a request or a command.

Readiness probes are not asked: a running container is ready.
"""

import logging
import signal
import socket
import threading
from typing import Any

import urllib3

from sandbox.node_agent.pod import Json
from sandbox.node_agent.pod_process import PodProcess, StartError

log = logging.getLogger(__name__)

_PERIOD_SECONDS, _TIMEOUT_SECONDS, _FAILURES = 10, 1, 3
"""Kubelet's, where a probe says nothing."""


class Probing:
    """Asks the probes of one run of a container, and ends the run when they have failed often enough."""

    def __init__(self, container: Json, process: PodProcess, address: str, grace_seconds: float) -> None:
        """`address` is the pod's."""
        self._container = container
        self._process = process
        self._address = address
        self._grace_seconds = grace_seconds
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin, in a thread of its own if there is something to ask."""
        if {"startupProbe", "livenessProbe"} & self._container.keys():
            threading.Thread(target=self._ask, name=f"probes of {self._container['name']}", daemon=True).start()

    def stop(self) -> None:
        """The run has ended."""
        self._ended.set()

    def _ask(self) -> None:
        for kind in ("startupProbe", "livenessProbe"):
            probe: Json | None = self._container.get(kind)
            if probe and not self._holds(probe, once=kind == "startupProbe"):
                log.warning("container %s is ended: its %s failed", self._container["name"], kind)
                self._process.signal(signal.SIGTERM)
                if not self._ended.wait(self._grace_seconds):
                    self._process.signal(signal.SIGKILL)
                return

    def _holds(self, probe: Json, *, once: bool) -> bool:
        """Whether the probe passes until the run ends; with `once`, whether it passes at all."""
        failures = 0
        self._ended.wait(probe.get("initialDelaySeconds", 0))
        while not self._ended.is_set():
            passed = self._passes(probe)
            if passed and once:
                return True
            failures = 0 if passed else failures + 1
            if failures >= probe.get("failureThreshold", _FAILURES):
                return False
            self._ended.wait(probe.get("periodSeconds", _PERIOD_SECONDS))
        return True

    def _passes(self, probe: Json) -> bool:
        timeout: float = probe.get("timeoutSeconds", _TIMEOUT_SECONDS)
        if action := probe.get("exec"):
            return self._succeeds(action["command"], timeout)
        try:
            if request := probe.get("httpGet"):
                url = f"http://{self._address}:{self._port(request['port'])}{request.get('path', '/')}"
                return 200 <= urllib3.request("GET", url, timeout=timeout, retries=False).status < 400
            port = self._port(probe["tcpSocket"]["port"])
            socket.create_connection((self._address, port), timeout).close()
        except (OSError, urllib3.exceptions.HTTPError):
            return False
        return True

    def _succeeds(self, command: list[str], timeout: float) -> bool:
        try:
            asked = self._process.beside(command)
        except StartError:
            return False
        late = threading.Timer(timeout, asked.signal, [signal.SIGKILL])
        late.start()
        try:
            return asked.wait() == 0
        finally:
            late.cancel()

    def _port(self, port: Any) -> int:
        """A port by its number, or by its name among those of the container."""
        named = {found.get("name"): found["containerPort"] for found in self._container.get("ports", [])}
        return named.get(port, port)
