"""One server program of the sandbox as a child process: start, wait until ready, stop."""

import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import urllib3

_POLL_SECONDS = 0.05
_LOG_LINES_TOLD = 8
_PROBE_SECONDS = 1


class ServerError(RuntimeError):
    """A server did not become ready, or cannot stay up; the message holds the end of its log."""


@dataclass
class ServerProcess:
    """A running server. Dies with its parent, whatever ends the parent."""

    name: str
    command: list[str]
    log: Path
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, name: str, command: list[str], log: Path, environment: Mapping[str, str]) -> "ServerProcess":
        """Start `command` with exactly `environment`, appending its output to `log`.

        Call it from a thread that lives as long as the server should: the kernel's parent-death
        signal is tied to the thread that forked.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )
        return cls(name, command, log, environment, process)

    def again(self) -> "ServerProcess":
        """Start the same server anew, now that this one has ended."""
        return ServerProcess.start(self.name, self.command, self.log, self.environment)

    def wait_ready(self, ready: Callable[[], bool], timeout_seconds: float) -> None:
        """Block until `ready()` holds.

        Raises:
            ServerError: the process ended, or was not ready within `timeout_seconds`.
        """
        deadline = time.monotonic() + timeout_seconds
        while not ready():
            if self.process.poll() is not None:
                raise ServerError(f"{self.name} ended with exit code {self.process.returncode}{self.told()}")
            if time.monotonic() > deadline:
                raise ServerError(f"{self.name} was not ready within {timeout_seconds:g} s{self.told()}")
            time.sleep(_POLL_SECONDS)

    def running(self) -> bool:
        return self.process.poll() is None

    def stop(self, grace_seconds: float) -> None:
        """SIGTERM, then SIGKILL after `grace_seconds`; returns when the process is gone."""
        self.process.terminate()
        try:
            self.process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def told(self) -> str:
        """The end of its log, for a message."""
        lines = self.log.read_text(errors="replace").splitlines()[-_LOG_LINES_TOLD:]
        return "".join(["; the end of ", str(self.log), ":", *(f"\n  {line}" for line in lines)])


def answers(url: str, pool: urllib3.PoolManager) -> bool:
    """Whether an HTTP server of this machine answers `url` with 200, asked by a pool that knows no proxy."""
    try:
        return pool.request("GET", url, timeout=_PROBE_SECONDS, retries=False).status == 200
    except (urllib3.exceptions.HTTPError, OSError):
        return False
