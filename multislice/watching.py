"""Runs a call in the foreground: shows its output, prints its states on stderr and handles Ctrl-C.

Ctrl-C cancels the call, because its chips cost money. A second Ctrl-C during the cancellation leaves the call running
and prints how to find it.
"""

import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

from infra.cluster.job_logs import Line, follow, hosts, leader
from infra.cluster.job_state import LEADER, State
from infra.cluster.kubernetes import UNREACHABLE
from multislice.call import Call, FunctionLog, Status
from multislice.errors import CallError
from multislice.outcome import Outcome
from workloads.terminal import inert

Shown = Literal["leader", "all"]
"""Hosts to show: `leader`, the first host of the first slice, whose value is the result, or `all`, with their names."""

_LAST_LINES_SECONDS = 3.0
"""Time for the last lines of a log to arrive after the result."""


class Screen:
    """Shows what the function prints on each host while it runs."""

    def __init__(self, call: str, shown: Shown, leading: str = LEADER) -> None:
        self.ended = threading.Event()
        """Set when the function has ended on the first host."""
        self.closed = False
        """Whether to show nothing more."""
        self._call = call
        self._shown: Shown = shown
        self._leading = leading
        self._logs: dict[str, FunctionLog] = {}

    def line(self, line: Line) -> None:
        """Show the next line of a host."""
        log = self._logs.setdefault(line.host, FunctionLog(self._call))
        text = log.line(line.text)
        if text is not None and not self.closed:
            shown = text if self._shown == "leader" else f"[{line.host}] {text}"
            print(inert(shown) if sys.stdout.isatty() else shown, flush=True)
        if log.ended and line.host == self._leading:
            self.ended.set()


def watch(call: Call, shown: Shown) -> Outcome:
    """Show the output of a call until it ends, and return its outcome."""
    screen = Screen(call.id, shown, call.leader)

    def read() -> None:
        # The main thread reads the status of the call at the same time and reports these errors.
        with suppress(LookupError, *UNREACHABLE):
            follow(call.connection.api, call.namespace, call.id, leader if shown == "leader" else hosts, screen.line)

    reading = threading.Thread(target=read, name=f"output of {call.id}", daemon=True)
    try:
        reading.start()
        found = call.outcome(None, lambda status: print_status(call, status), screen.ended)
    except BaseException as stopped:
        screen.closed = True
        if isinstance(stopped, KeyboardInterrupt):
            cancel([call])
        raise
    reading.join(_LAST_LINES_SECONDS)
    screen.closed = True
    return found


def cancel(calls: Sequence[Call]) -> None:
    """Cancel calls, and print how to get the results of those that have ended.

    After an interruption, the calls that are not cancelled yet continue.
    """
    left = list(calls)
    try:
        while left:
            _cancel(left[0])
            left.pop(0)
    except KeyboardInterrupt:
        for call in left:
            say(f"call {call.id} may still run; find it with {call.again}")
        raise


def _cancel(call: Call) -> None:
    again = call.again
    try:
        if (status := call.status()).state in (State.COMPLETED, State.FAILED):
            say(f"call {call.id} has ended ({status.state}); {again}.result() returns its result")
            return
        call.cancel()
        say(f"call {call.id} is cancelled")
    except CallError as error:
        say(f"call {call.id} is not cancelled and may still run: {error}; end it with {again}.cancel()")


def print_status(call: Call, status: Status) -> None:
    """Print the state of a call, and its time limit once it runs."""
    limit = f", for at most {call.spec.max_hours:g} hours (max_hours)" if status.state is State.RUNNING else ""
    say(f"call {call.id} {status}{limit}")


def say(words: str) -> None:
    """Print words of this package on stderr."""
    print(inert(f"multislice: {words}"), file=sys.stderr, flush=True)
