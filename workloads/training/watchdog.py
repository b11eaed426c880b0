"""The thread that ends a process whose main thread cannot: it hangs, or waits for a host that failed.

Owns that thread and the dump of all stacks. What is expected by when is set in `deadline`; how the
process ends is up to `ending`. A call that blocks and keeps Python's lock stops this thread too, as does whoever
stops the process: the other hosts then miss it in the next collective, and name it (`signs`).
"""

import faulthandler
import tempfile
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from workloads.training.deadline import Expectation
from workloads.training.ending import Ending, Failure
from workloads.training.runtime import Processes
from workloads.training.signs import Signs

POLL_SECONDS = 1.0

_NO_SIGN = "no sign of life from "


class Watchdog:
    """Watches one process; a context manager that ends with its thread."""

    def __init__(
        self,
        processes: Processes,
        ending: Ending,
        explain: Callable[[Expectation], str],
        each_second: Callable[[], None] | None = None,
    ):
        """`each_second` is called in the watchdog's thread, and may change what is expected."""
        self._processes = processes
        self._ending = ending
        self._explain = explain
        self._each_second = each_second
        self._signs = Signs(processes)
        self._suspected = ""
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(POLL_SECONDS):
            self._signs.exchange()
            if self._processes.leads:
                self._suspect(self._signs.silent())
            if word := self._processes.hear_failure():
                self._ending.fail(Failure.heard(word, stacks(), self._processes.host), self._processes)
            if self._each_second:
                self._each_second()
            if missed := self._processes.deadline.missed():
                # Followers ask for it only now: the leader answers the questions of all hosts, every second.
                silent = self._signs.silent()
                cause = self._explain(missed) + (f"; {_NO_SIGN}{silent}" if silent else "")
                self._ending.fail(Failure.hang(cause, stacks(), self._processes.host), self._processes)
        self._suspect("")

    def _suspect(self, silent: str) -> None:
        """Have the leader's record say so before JAX aborts this process, which leaves no time for it."""
        if silent != self._suspected:
            self._ending.note(Failure.lost(f"{_NO_SIGN}{silent}", self._processes.host) if silent else None)
        self._suspected = silent


def stacks() -> str:
    """Where every thread of this process is."""
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read().decode(errors="replace")
