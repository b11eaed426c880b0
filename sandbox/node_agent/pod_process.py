"""One container as a process group of this machine: start, probe, signal, wait, and clean up what is left over.

The process has its own mount and UTS namespaces (see `launch`), and shares files, network and process ids with the
machine. Run as a module, this waits for the end of its parent and then kills the parent's leftovers.
"""

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import urllib3

from infra.kubernetes import Json
from sandbox.node_agent import launch
from sandbox.node_agent.environment import Mount

log = logging.getLogger(__name__)

_PERIOD_SECONDS, _TIMEOUT_SECONDS, _FAILURES = 10, 1, 3
"""Kubelet's defaults for a probe."""

FOLDER_VARIABLE = "TPU_MULTISLICE_POD"
"""Environment variable of every process of a pod, with the pod's working folder."""


def end_leftovers(folder: Path) -> None:
    """Kill every process of a pod whose working folder is `folder` or in it."""
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            marker = process.environ().get(FOLDER_VARIABLE)
            if marker is not None and Path(marker).is_relative_to(folder):
                process.kill()


def start_reaper(folder: Path) -> "subprocess.Popen[bytes]":
    """Start a process that kills leftovers in `folder` when this process ends or closes its pipe."""
    return subprocess.Popen(
        [sys.executable, "-m", __name__, str(folder)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )


class StartError(RuntimeError):
    """Raised when the container's program could not be executed (kubelet's StartError)."""


@dataclass(frozen=True)
class Plan:
    """All inputs for a container's process."""

    command: list[str]
    environment: Mapping[str, str]
    hostname: str
    workdir: Path
    mounts: list[Mount]
    log: Path


@dataclass
class PodProcess:
    """A running container, or a command inside it. Its process group is killed when its main process ends."""

    _process: subprocess.Popen[bytes]
    plan: Plan
    """Plan of the container."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def start(cls, plan: Plan) -> "PodProcess":
        """Start the container's program. Returns when it runs.

        Call it from a thread that lives as long as the process should: the kernel's parent-death signal is tied to the
        thread that forked. Raises StartError if the program, its folder or a mount is missing.
        """
        with plan.log.open("ab") as log:
            mounts = [(str(mount.source), mount.target, mount.read_only) for mount in plan.mounts]
            return cls._begin(plan, plan.command, log.fileno(), {"hostname": plan.hostname, "mounts": mounts})

    def run_inside(self, command: Sequence[str], output: int = subprocess.DEVNULL) -> "PodProcess":
        """Start a command in this container: same environment, folder, files and host name.

        Its output goes to the descriptor `output`. Call it from a thread that lives as long as the command should.
        Raises StartError if the container has no such program, or has ended.
        """
        return self._begin(self.plan, command, output, {"inside": self.pid})

    @property
    def pid(self) -> int:
        """Return the id of the main process, and of its group."""
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group, if it still runs."""
        with self._lock:
            if self._process.returncode is None:
                _signal_group(self.pid, number)

    def wait(self) -> int:
        """Wait for the main process, kill the rest of its group, and return the code of `Popen`."""
        if self._process.returncode is not None:
            return self._process.returncode
        # Not reaped yet, so its pid, which is the group's id, cannot be given to another process.
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            _signal_group(self.pid, signal.SIGKILL)
            return self._process.wait()

    @classmethod
    def _begin(cls, plan: Plan, command: Sequence[str], output: int, steps: Mapping[str, Any]) -> "PodProcess":
        reader, writer = os.pipe()
        shared = {"report": writer, "folder": str(plan.workdir)}
        with open(reader, "rb") as report:
            try:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", launch.__file__, json.dumps({**shared, **steps}), *command],
                    env=plan.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=[writer],
                )
            except (OSError, ValueError) as error:
                raise StartError(f"{command[0]}: {error}") from error
            finally:
                os.close(writer)
            fault = report.read().decode()
        if fault:
            process.wait()
            raise StartError(fault)
        return cls(process, plan)


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


@dataclass
class Probing:
    """Runs the startup and liveness probes of a container, and ends the container after enough failures.

    Readiness probes are not run: a running container is ready.
    """

    _container: Json
    _process: PodProcess
    _address: str
    """Address of the pod."""
    _grace_seconds: float
    _ended: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Start probing, in a separate thread, if the container has such a probe."""
        if {"startupProbe", "livenessProbe"} & self._container.keys():
            threading.Thread(target=self._probe, name=f"probes of {self._container['name']}", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def _probe(self) -> None:
        for kind in ("startupProbe", "livenessProbe"):
            probe: Json | None = self._container.get(kind)
            if probe and not self._keeps_passing(probe, once=kind == "startupProbe"):
                log.warning("container %s is ended: its %s failed", self._container["name"], kind)
                self._process.signal(signal.SIGTERM)
                if not self._ended.wait(self._grace_seconds):
                    self._process.signal(signal.SIGKILL)
                return

    def _keeps_passing(self, probe: Json, *, once: bool) -> bool:
        """Return whether the probe passes until the container ends; with `once`, whether it passes at all."""
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
            process = self._process.run_inside(command)
        except StartError:
            return False
        late = threading.Timer(timeout, process.signal, [signal.SIGKILL])
        late.start()
        try:
            return process.wait() == 0
        finally:
            late.cancel()

    def _port(self, port: Any) -> int:
        """Return a port by its number, or by its name among those of the container."""
        named = {each.get("name"): each["containerPort"] for each in self._container.get("ports", [])}
        return named.get(port, port)


if __name__ == "__main__":
    sys.stdin.read()
    end_leftovers(Path(sys.argv[1]))
