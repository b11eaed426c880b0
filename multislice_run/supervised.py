"""A process that a supervisor runs in its pod: its side (when it begins, and what it tells), and the supervisor's.

The supervisor passes one socket. A process that waits in advance reads from it when and as what to begin, and every
process writes there that it has done a step, and that it has saved a state.
"""

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress

SOCKET_VARIABLE = "SUPERVISOR_SOCKET"
"""Environment variable with the descriptor of the socket to the supervisor. Without it there is none."""

STEPPED, SAVED = b"s", b"c"
"""What a process tells: it has done its first step, it has saved its first state."""

_told = set[bytes]()


def is_supervised() -> bool:
    """Return whether a supervisor starts this process again if it fails."""
    return SOCKET_VARIABLE in os.environ


def wait_for_start(environment: MutableMapping[str, str]) -> float:
    """Wait until the supervisor begins an attempt with this process, and set its variables in `environment`.

    Returns:
        The Unix time at which it began. The process ends if the supervisor does not need it.
    """
    with socket.socket(fileno=os.dup(_descriptor())) as link, link.makefile() as lines:
        line = lines.readline()
    if not line:
        os._exit(0)
    start = json.loads(line)
    environment.update(start["variables"])
    return start["began"]


def tell(what: bytes) -> None:
    """Tell the supervisor `what`, once."""
    if is_supervised() and what not in _told:
        _told.add(what)
        with suppress(OSError):
            os.write(_descriptor(), what)


def _descriptor() -> int:
    return int(os.environ[SOCKET_VARIABLE])


SIGNALLED = 128
"""Exit codes above it stand for a signal, as in a shell."""

_PDEATHSIG = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


class Program:
    """A process of the program, which ends with this one."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str]):
        self._link, theirs = socket.socketpair()
        with theirs:
            environment = {**os.environ, **variables, SOCKET_VARIABLE: str(theirs.fileno())}
            # The signal comes when the thread that forked ends, so that only the main thread may do this.
            self._process = subprocess.Popen(
                command,
                env=environment,
                pass_fds=[theirs.fileno()],
                process_group=0,
                preexec_fn=_end_with_the_parent,
            )
        self._end = os.pidfd_open(self._process.pid)
        self.began = time.time()
        self.told = set[bytes]()

    def begin(self, variables: Mapping[str, str]) -> None:
        """Begin an attempt with a process that waits."""
        self.began = time.time()
        start = {"variables": dict(variables), "began": self.began}
        with suppress(OSError):
            # If the process has ended while it waited, its exit code says why.
            self._link.sendall(json.dumps(start).encode() + b"\n")

    def wait(self, seconds: float) -> int | None:
        """Wait for the end or for what the process tells. Return the exit code, as a shell does, if it has ended."""
        watched = select.poll()
        watched.register(self._end, select.POLLIN)
        watched.register(self._link, select.POLLIN)
        ready = [descriptor for descriptor, _ in watched.poll(1000 * seconds)]
        if self._link.fileno() in ready:
            with suppress(BlockingIOError):
                told = self._link.recv(16, socket.MSG_DONTWAIT)
                self.told.update(bytes([each]) for each in told)
                if not told:
                    # Its copies of the socket are closed, and only its end is left to wait for.
                    watched.unregister(self._link)
                    ready = [descriptor for descriptor, _ in watched.poll(1000 * seconds)]
        if self._end not in ready:
            return None
        code = self._process.wait()
        self.kill()
        return code if code >= 0 else SIGNALLED - code

    def send(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._end, number)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)


def _end_with_the_parent() -> None:
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
