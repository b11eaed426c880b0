"""Notices that all hosts of a job stand still: each waits for the others, so that none can go on.

A host stands still if its main thread has run no Python for some minutes. Where the thread is does not count, since a
healthy loop may wait in the same call at every look. Whether it has moved is asked of the interpreter: a pending call
runs in the main thread as soon as that runs Python again (https://docs.python.org/3/c-api/init.html#c.Py_AddPendingCall).
A look takes 2 microseconds, and the thread is not slowed down. It works in all versions of Python. Events of
`sys.monitoring` would need Python 3.12, and a changed program.

A main thread that waits for a compiler or for a process that it has started does not stand still. A call into a
compiled program that takes longer than the limit looks like one that hangs.

The hosts agree through files of the job's folder, `standstill/<run id>/<restart>/`:

    <process>           the host has begun
    <process>-still     its main thread has stood still for the limit

Only such a host writes or reads more than its first file.
"""

import ctypes
import faulthandler
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from types import FrameType

from etils import epath

from multislice_run.attempt_facts import AttemptFacts
from multislice_run.pod import HostPosition

HANG_MINUTES = 10.0
"""Default time in minutes after which a main thread that has run no Python stands still."""

_LOOKS = 20
"""Number of looks in the time limit."""
_LOOKS_OF_STILL = 120
"""The same for a host that has told the others that it stands still."""
_AGREEING_LOOKS = 3
"""Number of looks in a row at which all hosts must stand still."""
_LOOK_SECONDS = 2.0
"""Time within which hosts look after it is time to. They look about once a second."""
_WORKS_ELSEWHERE = ("/jax/_src/compiler.py", "/subprocess.py")
"""Ends of the files in which a main thread waits for work that is done outside of Python."""
_STILL = "-still"


class MainThread:
    """Tells whether the main thread has run Python since the last look. Only one thread may look."""

    def __init__(self) -> None:
        self._asked = False
        # The object must live for as long as the call is pending.
        self._answer = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(self._run)

    def _run(self, _: object) -> int:
        self._asked = False
        return 0

    def has_moved(self) -> bool:
        """Return whether the main thread has moved, or works outside of Python."""
        if self._asked:
            return self._works_elsewhere()
        self._asked = True
        if ctypes.pythonapi.Py_AddPendingCall(self._answer, None):
            # The interpreter has too many pending calls. That is no standstill.
            self._asked = False
        return True

    def _works_elsewhere(self) -> bool:
        # The name says private, but Python documents it.
        frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
        frame: FrameType | None = frames.get(threading.main_thread().ident or 0)
        while frame:
            if frame.f_code.co_filename.endswith(_WORKS_ELSEWHERE):
                return True
            frame = frame.f_back
        return False


class Standstill:
    """This host's part in the agreement of all hosts that none of them moves."""

    def __init__(self, folder: epath.Path, start: AttemptFacts, position: HostPosition, minutes: float):
        """`folder` is the job's. Only `look` reads and writes there."""
        self._folder = folder / "standstill" / start.run_id / str(start.restart_attempt)
        self._restart = start.restart_attempt
        self._position = position
        self._minutes = minutes
        self._main = MainThread()
        self._begun = False
        self._next = 0.0
        self._since: float | None = None
        """When the main thread was first seen to stand still, by `time.monotonic()`. None: it moves."""
        self._told = False
        """Whether this host has told the others that it stands still."""
        self._looks = 0
        """Number of looks in a row at which all hosts stood still."""

    def look(self) -> str | None:
        """Return why the job hangs, once all hosts have stood still for the limit. Call it about once a second.

        A host that has moved tells it within one look, so all must stand still at several looks.
        """
        now = time.monotonic()
        if now < self._next:
            return None
        try:
            return self._look(now)
        except Exception:  # noqa: BLE001 - each object store has exceptions of its own; the next look tries again
            self._looks = 0
            return None
        finally:
            self._next = now + 60 * self._minutes / (_LOOKS_OF_STILL if self._told else _LOOKS)

    def end(self) -> None:
        """Remove the files of this host, which ends in order."""
        with suppress(Exception):
            self._file("").unlink(missing_ok=True)
            self._file(_STILL).unlink(missing_ok=True)

    def publish_failure(self, _: Mapping[str, object], /) -> None:
        """Wait until the others have found the same. They would lose their connection if this host ended before."""
        time.sleep(_AGREEING_LOOKS * 60 * self._minutes / _LOOKS_OF_STILL + _LOOK_SECONDS)

    def _look(self, now: float) -> str | None:
        if not self._begun:
            self._begin()
        if self._main.has_moved():
            self._since, self._looks = None, 0
            if self._told:
                self._file(_STILL).unlink(missing_ok=True)
                self._told = False
            return None
        self._since = self._since or now
        if now - self._since < 60 * self._minutes:
            return None
        if not self._told:
            self._file(_STILL).write_text("")
            self._told = True
        absent = self._absent_if_all_are_still()
        self._looks = 0 if absent is None else self._looks + 1
        return None if absent is None or self._looks < _AGREEING_LOOKS else self._cause(absent)

    def _begin(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file("").write_text(self._position.host)
        # A process that was evicted may have left it.
        self._file(_STILL).unlink(missing_ok=True)
        self._begun = True
        if self._position.process == 0:
            for earlier in range(self._restart):
                (self._folder.parent / str(earlier)).rmtree(missing_ok=True)

    def _absent_if_all_are_still(self) -> list[int] | None:
        """Return the hosts that have not begun or have ended, by index; None if one of the others moves."""
        names = {path.name for path in self._folder.iterdir()}
        hosts = range(len(self._position.hosts) * self._position.slice_count)
        present = [host for host in hosts if str(host) in names]
        if any(f"{host}{_STILL}" not in names for host in present):
            return None
        return [host for host in hosts if host not in present]

    def _cause(self, absent: list[int]) -> str:
        found = f"no host has moved for {self._minutes:g} minutes, because each waits for others"
        if not absent:
            return found
        index, worker = divmod(absent[0], len(self._position.hosts))
        more = f" and {len(absent) - 1} more" if absent[1:] else ""
        return f"{found}; slice {index} host {worker}{more} has not begun, or has ended"

    def _file(self, kind: str) -> epath.Path:
        return self._folder / f"{self._position.process}{kind}"


def stacks() -> str:
    """Return the stacks of all threads of this process."""
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read().decode(errors="replace")
