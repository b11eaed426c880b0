"""The thread that ends a process whose main thread cannot: it hangs, or waits for a host that failed.

Owns that thread and the dump of all stacks. What is expected by when is set in `deadline`; how the
process ends is up to `ending`. A call that blocks and keeps Python's lock stops this thread too; the
other hosts then end it, since they miss it in the next collective.
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

POLL_SECONDS = 1.0


class Watchdog:
    """Watches one process; a context manager that ends with its thread."""

    def __init__(self, processes: Processes, ending: Ending, explain: Callable[[Expectation], str]):
        self._processes = processes
        self._ending = ending
        self._explain = explain
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
            if word := self._processes.hear_failure():
                self._ending.fail(Failure.heard(word, stacks(), self._processes.host), self._processes)
            if missed := self._processes.deadline.missed():
                self._ending.fail(Failure.hang(self._explain(missed), stacks(), self._processes.host), self._processes)


def stacks() -> str:
    """Where every thread of this process is."""
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        return file.read().decode(errors="replace")
