"""One container as a process group of this machine: start, signal, wait.

The process has its own mount and UTS namespaces (see `launch`), nothing else of its own: files,
network and process ids are the machine's.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.node_agent import launch
from sandbox.node_agent.volumes import Mount


class StartError(RuntimeError):
    """The container's program could not be executed; kubelet's StartError."""


@dataclass(frozen=True)
class Plan:
    """All that a container's process is made of."""

    command: list[str]
    environment: Mapping[str, str]
    hostname: str
    workdir: Path
    mounts: list[Mount]
    log: Path


@dataclass
class PodProcess:
    """A running container. Its group is killed when its main process ends."""

    _process: subprocess.Popen[bytes]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def start(cls, plan: Plan) -> "PodProcess":
        """Start the container's program; returns when it runs.

        Call it from a thread that lives as long as the process should: the kernel's parent-death
        signal is tied to the thread that forked.

        Raises:
            StartError: the program, its folder or its mounts are not to be had.
        """
        reader, writer = os.pipe()
        with open(reader, "rb") as report:
            try:
                process = _launch(plan, writer)
            except (OSError, ValueError) as error:
                raise StartError(f"{plan.command[0]}: {error}") from error
            finally:
                os.close(writer)
            fault = report.read().decode()
        if fault:
            process.wait()
            raise StartError(fault)
        return cls(process)

    @property
    def pid(self) -> int:
        """Id of the main process, and of its group."""
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group, if it still runs."""
        with self._lock:
            if self._process.returncode is None:
                _signal_group(self.pid, number)

    def wait(self) -> int:
        """Wait for the main process, kill what is left of its group; returns the code of `Popen`."""
        # Not reaped yet: its pid, the group's id, cannot be given to another process meanwhile.
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:
            _signal_group(self.pid, signal.SIGKILL)
            return self._process.wait()


def _launch(plan: Plan, report: int) -> subprocess.Popen[bytes]:
    steps = {
        "report": report,
        "hostname": plan.hostname,
        "folder": str(plan.workdir),
        "mounts": [(str(mount.source), mount.target, mount.read_only) for mount in plan.mounts],
    }
    with plan.log.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", launch.__file__, json.dumps(steps), *plan.command],
            env=plan.environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[report],
        )


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)
