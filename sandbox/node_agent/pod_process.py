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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    """A running container, or a command beside it. Its group is killed when its main process ends."""

    _process: subprocess.Popen[bytes]
    plan: Plan
    """That of the container."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def start(cls, plan: Plan) -> "PodProcess":
        """Start the container's program; returns when it runs.

        Call it from a thread that lives as long as the process should: the kernel's parent-death
        signal is tied to the thread that forked.

        Raises:
            StartError: the program, its folder or its mounts are not to be had.
        """
        with plan.log.open("ab") as log:
            steps = {"hostname": plan.hostname, "mounts": [_step(mount) for mount in plan.mounts]}
            return cls._begin(plan, plan.command, log.fileno(), steps)

    def beside(self, command: Sequence[str], output: int = subprocess.DEVNULL) -> "PodProcess":
        """Start a command in this container: same environment, folder, files and host name.

        What it prints goes to the descriptor `output`. Call it from a thread that lives as long as the command should.

        Raises:
            StartError: the container has no such program, or has ended.
        """
        return self._begin(self.plan, command, output, {"beside": self.pid})

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
        if self._process.returncode is not None:
            return self._process.returncode
        # Not reaped yet: its pid, the group's id, cannot be given to another process meanwhile.
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


def _step(mount: Mount) -> tuple[str, str, bool]:
    return str(mount.source), mount.target, mount.read_only


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)
