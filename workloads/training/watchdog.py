"""Ends a process from another thread if its main thread hangs or waits for a host that failed.

It dumps all stacks first. `runtime` has what is expected by when, and `ending` how a process ends. A call that blocks
and holds Python's lock stops this thread too, and so does stopping the process. The other hosts then miss its sign of
life: each host publishes one every second, and the leader keeps the list of hosts that stopped. JAX aborts all hosts if
one is silent for long, but does not record which one, so the list comes first. A host that holds Python's lock for some
seconds is on the list only for that time, and nothing ends because of it.
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Self

import jax

from multislice_run.ending import Ending, Failure
from multislice_run.standstill import stacks
from workloads.spec import ExitCode
from workloads.training.runtime import Expectation, Processes

SILENT_SECONDS = 5.0
"""Time without a sign of life after which a host is on the list. It is well below half of JAX's heartbeat timeout
(`runtime`), after which JAX may abort the others."""

_SIGNS = "signs-of-life"
_SILENT = "silent-hosts"


POLL_SECONDS = 1.0

_NO_SIGN = "no sign of life from "


class Watchdog:
    """Watches one process. It is a context manager that ends its thread."""

    def __init__(
        self,
        processes: Processes,
        ending: Ending,
        explain: Callable[[Expectation], str],
        each_second: Callable[[], str | None] = lambda: None,
    ):
        """`each_second` is called in the watchdog's thread, and may change the deadline. It returns the cause if it
        finds that the job hangs."""
        self._processes = processes
        self._ending = ending
        self._explain = explain
        self._each_second = each_second
        self._signs_given = 0
        self._seen: dict[str, tuple[int, float]] = {}
        """Last sign of each host, and when this process first saw it, by its own clock. Only on the leader."""
        self._suspected = ""
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        try:
            while not self._done.wait(POLL_SECONDS):
                self._look()
            self._suspect("")
        except Exception as error:  # noqa: BLE001 - JAX's service is open, so what is published there can be anything
            # Without a watchdog, this process could wait forever.
            self._ending.fail(Failure.of(error, self._processes.host), self._processes)

    def _look(self) -> None:
        self._exchange_signs()
        if self._processes.leads:
            self._suspect(self._silent())
        if other := self._processes.read_failure():
            self._ending.fail(Failure.from_other_host(other, stacks(), self._processes.host), self._processes)
        cause = self._each_second()
        if missed := self._processes.deadline.missed():
            cause = self._explain(missed)
        if cause:
            # Followers read it only now, because otherwise the leader would serve all hosts every second.
            silent = self._silent()
            cause += f"; {_NO_SIGN}{silent}" if silent else ""
            details = stacks().splitlines()
            failure = Failure(cause, self._processes.host, ExitCode.HANG, time.time(), details)
            self._ending.fail(failure, self._processes)

    def _exchange_signs(self) -> None:
        """Publish a sign of life. On the leader, update the list of silent hosts."""
        self._signs_given += 1
        # The signs are stored on the leader, so they are lost with it.
        with suppress(jax.errors.JaxRuntimeError):
            self._processes.put(_SIGNS, [self._processes.host, self._signs_given])
            if not self._processes.leads:
                return
            now = time.monotonic()
            for host, number in self._processes.read_all(_SIGNS):
                if self._seen.get(host, (0, now))[0] != number:
                    self._seen[host] = (number, now)
            silent = sorted(host for host, (_, since) in self._seen.items() if now - since > SILENT_SECONDS)
            self._processes.put(_SILENT, ", ".join(silent))

    def _silent(self) -> str:
        """Describe the hosts without a sign of life. Empty if there are none, or if the leader is gone."""
        with suppress(jax.errors.JaxRuntimeError):
            return "".join(self._processes.read_all(_SILENT))
        return ""

    def _suspect(self, silent: str) -> None:
        """Write the leader's record before JAX aborts this process, which leaves no time for it."""
        if silent != self._suspected:
            cause, host = f"{_NO_SIGN}{silent}", self._processes.host
            self._ending.note(Failure(cause, host, ExitCode.PEER_LOST, time.time()) if silent else None)
        self._suspected = silent
