"""Server programs of the sandbox as child processes: start, wait until ready, restart and stop them."""

import logging
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import urllib3

_POLL_SECONDS = 0.05
_LOG_LINES_SHOWN = 8
_PROBE_SECONDS = 1
_MOST_ENDS = 5
"""Ends within `_WINDOW_SECONDS` after which a server counts as one that cannot stay up."""
_WINDOW_SECONDS = 60
_STOP_SECONDS = 10

_log = logging.getLogger(__name__)


def holds_within(seconds: float, condition: Callable[[], bool], poll_seconds: float = 0.1) -> bool:
    """Block until `condition()` holds; False if it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(poll_seconds)
    return True


def log_end(log: Path, lines: int = _LOG_LINES_SHOWN) -> str:
    """The last lines of a log, for an error message."""
    shown = log.read_text(errors="replace").splitlines()[-lines:]
    return "".join(["the end of ", str(log), ":", *(f"\n  {line}" for line in shown)])


class ServerError(RuntimeError):
    """A server did not become ready, or keeps ending. The message contains the end of its log."""


@dataclass
class ServerProcess:
    """A running server. The kernel kills it when its parent ends, however that happens."""

    name: str
    command: list[str]
    log: Path
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, name: str, command: list[str], log: Path, environment: Mapping[str, str]) -> "ServerProcess":
        """Start `command` with exactly `environment`, appending its output to `log`.

        Call it from a thread that lives as long as the server should: the kernel's parent-death signal is tied to the
        thread that forked.
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

    def restarted(self) -> "ServerProcess":
        """Start the same server again, now that this one has ended."""
        return ServerProcess.start(self.name, self.command, self.log, self.environment)

    def wait_ready(self, ready: Callable[[], bool], timeout_seconds: float) -> None:
        """Block until `ready()` holds.

        Raises:
            ServerError: the process ended, or was not ready within `timeout_seconds`.
        """
        settled = holds_within(timeout_seconds, lambda: not self.running() or ready(), _POLL_SECONDS)
        if not self.running():
            raise ServerError(f"{self.name} ended with exit code {self.process.returncode}; {log_end(self.log)}")
        if not settled:
            raise ServerError(f"{self.name} was not ready within {timeout_seconds:g} s; {log_end(self.log)}")

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


def answers(url: str, pool: urllib3.PoolManager) -> bool:
    """Whether an HTTP server of this machine answers `url` with 200. `pool` uses no proxy."""
    try:
        return pool.request("GET", url, timeout=_PROBE_SECONDS, retries=False).status == 200
    except (urllib3.exceptions.HTTPError, OSError):
        return False


@dataclass
class _Kept:
    server: ServerProcess
    ends: list[float] = field(default_factory=list[float])
    """Times of its latest ends, by the supervision's clock."""
    down: bool = False


@dataclass
class Supervision:
    """Restarts the servers of one site when they end. Use it from one thread, because the servers end with it."""

    pids: Path
    """Folder of the pid files."""
    clock: Callable[[], float] = time.monotonic
    _kept: list[_Kept] = field(default_factory=list[_Kept])

    def keep(self, server: ServerProcess) -> ServerProcess:
        """Supervise a server that was just started."""
        self._kept.append(_Kept(server))
        self._write_pid(server)
        return server

    def tend(self) -> None:
        """Restart servers that have ended: at once the first time, then after 1, 2 and 4 seconds.

        Raises:
            ServerError: a server keeps ending.
        """
        for kept in self._kept:
            if not kept.down and not kept.server.running():
                self._note_end(kept)
            if kept.down and self.clock() >= kept.ends[-1] + _delay_seconds(len(kept.ends)):
                kept.server, kept.down = kept.server.restarted(), False
                self._write_pid(kept.server)

    def stop(self) -> None:
        """Stop all servers, clients first, because the API server waits for open watches."""
        for kept in reversed(self._kept):
            kept.server.stop(_STOP_SECONDS)
            (self.pids / kept.server.name).unlink(missing_ok=True)
        self._kept.clear()

    def _note_end(self, kept: _Kept) -> None:
        now, code = self.clock(), kept.server.process.returncode
        kept.ends = [*(moment for moment in kept.ends if now - moment < _WINDOW_SECONDS), now]
        if len(kept.ends) >= _MOST_ENDS:
            times = f"{len(kept.ends)} times within {_WINDOW_SECONDS} s, last with exit code {code}"
            raise ServerError(f"{kept.server.name} keeps ending: {times}; {log_end(kept.server.log)}")
        kept.down = True
        _log.warning("%s ended with exit code %s; restarting it", kept.server.name, code)

    def _write_pid(self, server: ServerProcess) -> None:
        self.pids.mkdir(parents=True, exist_ok=True)
        # Replaced as a whole, so that a reader always finds a pid.
        draft = self.pids / f".{server.name}"
        draft.write_text(str(server.process.pid))
        draft.replace(self.pids / server.name)


def _delay_seconds(ends: int) -> int:
    return 0 if ends == 1 else 2 ** (ends - 2)
