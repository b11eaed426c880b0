"""Keeps the sandbox's servers up, as kubelet and Google keep those of a cluster: one that ends is started again.

Owns when, and the files that tell the pids. What the servers are and in which order they first start is up to
`control_plane` and `gcs`; the operators' processes come and go with their Deployments (`operators`).
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.server_process import ServerError, ServerProcess

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
