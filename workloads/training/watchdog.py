"""The thread that ends a process whose main thread cannot: it hangs, or waits for a host that failed.

It dumps all stacks first. `deadline` says what is expected by when, `ending` how a process ends. A call that blocks and
holds Python's lock stops this thread too, as does anyone who stops the process. The other hosts then miss its sign of
life: each host leaves one once a second, and the leader keeps the list of hosts that stopped. JAX aborts all hosts when
one is silent for long, but names none in storage; the list is there earlier. It accuses no host for good: one that
holds Python's lock for some seconds is on the list for as long, and nothing ends because of it.
"""

import faulthandler
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import jax

from workloads.training.deadline import Expectation
from workloads.training.ending import Ending, Failure
from workloads.training.runtime import Processes

SILENT_SECONDS = 5.0
"""Well below half of JAX's heartbeat time-out (`runtime`), after which it may abort the others."""

_SIGNS = "signs-of-life"
_SILENT = "silent-hosts"


class Signs:
    """The signs of one process, and on the leader those of all."""

    def __init__(self, processes: Processes):
        self._processes = processes
        self._given = 0
        self._seen: dict[str, tuple[str, float]] = {}
        """By host: its last sign, and when this process saw it first, by its own clock."""

    def exchange(self) -> None:
        """Give a sign; on the leader, look who gave none."""
        self._given += 1
        # Where the signs are kept is on the leader: when it is gone there is nobody to name anyone.
        with suppress(jax.errors.JaxRuntimeError):
            self._processes.put(_SIGNS, f"{self._processes.host} {self._given}")
            if self._processes.leads:
                self._processes.put(_SILENT, ", ".join(self._look()))

    def silent(self) -> str:
        """Hosts that give no sign of life, in words; empty when all do, or nobody can tell."""
        with suppress(jax.errors.JaxRuntimeError):
            return "".join(self._processes.read_all(_SILENT))
        return ""

    def _look(self) -> list[str]:
        now = time.monotonic()
        for host, _, number in (sign.rpartition(" ") for sign in self._processes.read_all(_SIGNS)):
            if self._seen.get(host, ("", now))[0] != number:
                self._seen[host] = (number, now)
        return sorted(host for host, (_, since) in self._seen.items() if now - since > SILENT_SECONDS)


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
            if word := self._processes.read_failure():
                self._ending.fail(Failure.from_other_host(word, stacks(), self._processes.host), self._processes)
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
