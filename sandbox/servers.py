"""Server programs of the sandbox as child processes: start them, wait until they are ready, restart and stop them."""

import logging
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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


_MOST_ENDS = 5
"""Ends within `_WINDOW_SECONDS` after which a server counts as one that cannot stay up."""
_WINDOW_SECONDS = 60
_STOP_SECONDS = 10

_log = logging.getLogger(__name__)


@dataclass
class _Kept:
    server: ServerProcess
    ends: list[float] = field(default_factory=list[float])
    """Moments of its latest ends, by the supervision's clock."""
    down: bool = False


@dataclass
class Supervision:
    """The servers of one site. Use it from one thread: the servers die with it."""

    pids: Path
    """Folder of the pid files."""
    clock: Callable[[], float] = time.monotonic
    _kept: list[_Kept] = field(default_factory=list[_Kept])

    def keep(self, server: ServerProcess) -> ServerProcess:
        """Look after a server that was just started."""
        self._kept.append(_Kept(server))
        self._write_pid(server)
        return server

    def tend(self) -> None:
        """Start what has ended again: at once the first time, then after 1, 2 and 4 seconds.

        Raises:
            ServerError: a server cannot stay up.
        """
        for kept in self._kept:
            if not kept.down and not kept.server.running():
                self._note_end(kept)
            if kept.down and self.clock() >= kept.ends[-1] + _delay_seconds(len(kept.ends)):
                kept.server, kept.down = kept.server.again(), False
                self._write_pid(kept.server)

    def stop(self) -> None:
        """Stop them, clients first: the API server waits for open watches."""
        for kept in reversed(self._kept):
            kept.server.stop(_STOP_SECONDS)
            (self.pids / kept.server.name).unlink(missing_ok=True)
        self._kept.clear()

    def _note_end(self, kept: _Kept) -> None:
        now, code = self.clock(), kept.server.process.returncode
        kept.ends = [*(moment for moment in kept.ends if now - moment < _WINDOW_SECONDS), now]
        if len(kept.ends) >= _MOST_ENDS:
            times = f"{len(kept.ends)} times within {_WINDOW_SECONDS} s, last with exit code {code}"
            raise ServerError(f"{kept.server.name} cannot stay up: it ended {times}{kept.server.told()}")
        kept.down = True
        _log.warning("%s ended with exit code %s; it is started again", kept.server.name, code)

    def _write_pid(self, server: ServerProcess) -> None:
        self.pids.mkdir(parents=True, exist_ok=True)
        # Replaced whole: whoever reads it while a server is started again finds a pid.
        draft = self.pids / f".{server.name}"
        draft.write_text(str(server.process.pid))
        draft.replace(self.pids / server.name)


def _delay_seconds(ends: int) -> int:
    return 0 if ends == 1 else 2 ** (ends - 2)
