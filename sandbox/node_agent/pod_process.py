"""One container as a process group of this machine: start, signal, wait, describe its end, and clean up.

The process has its own mount and UTS namespaces (see `launch`), and shares files, network and process ids with the
machine. Run as a module, this waits for the end of its parent and then kills the parent's leftovers.
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
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from infra.cluster.kubernetes import Json
from sandbox.node_agent import launch
from sandbox.node_agent.environment import Mount
from sandbox.node_agent.pod import timestamp

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
    """Working folder as the container sees it; made if it is in a volume."""
    mounts: list[Mount]
    """Mounts in their order. A mount point that the machine lacks is made for this container only."""
    stage: Path
    """Empty folder for making mount points."""
    log: Path
    message: Path
    """File with the program's message about its end."""


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
            steps = {"hostname": plan.hostname, "mounts": mounts, "stage": str(plan.stage)}
            return cls._begin(plan, plan.command, log.fileno(), steps)

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


def terminated(code: int, started: datetime, finished: datetime, message: str = "") -> Json:
    """Return the state after an exit with the code of `Popen`: below 0 it is a signal, which becomes 128 + n.

    `message` is what the program left about its end.
    """
    end: Json = {"reason": "Error" if code else "Completed", "exitCode": code}
    if code < 0:
        end |= {"exitCode": 128 - code, "signal": -code, "message": f"ended by {signal.Signals(-code).name}"}
    told = {"message": message} if message else {}
    return {"terminated": {**end, **told, "startedAt": timestamp(started), "finishedAt": timestamp(finished)}}


def unstartable(message: str, moment: datetime) -> Json:
    """Return the state of a container whose program could not be executed."""
    times = {"startedAt": timestamp(moment), "finishedAt": timestamp(moment)}
    return {"terminated": {"exitCode": 128, "reason": "StartError", "message": message, **times}}


def _signal_group(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, number)


if __name__ == "__main__":
    sys.stdin.read()
    end_leftovers(Path(sys.argv[1]))
