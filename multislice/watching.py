"""A call that somebody waits for: its output on the screen, its states on stderr, and what Ctrl-C does.

Ctrl-C cancels the call, for chips that nobody waits for cost money. A second one while that is under way leaves the
call to itself, and says how to find it again.
"""

import sys
import threading
from collections.abc import Sequence

from multislice.call import NOISE, Call, Status
from multislice.following import LogHost, Which, follow
from multislice.outcome import Outcome
from workloads.progress import FunctionBegins, FunctionEnded

_LAST_LINES_SECONDS = 3.0
"""For the last lines of a log to arrive, when the result is there already."""


class _Screen:
    """Shows what the function prints while it runs, each host's own window of its log."""

    def __init__(self, which: Which) -> None:
        self.ended = threading.Event()
        """The first host's function has ended."""
        self._which = which
        self._open: set[LogHost] = set()
        self._one_line = threading.Lock()

    def line(self, host: LogHost, line: str) -> None:
        if FunctionBegins.parse(line):
            self._open.add(host)
        elif FunctionEnded.parse(line):
            self._open.discard(host)
            if host.leads:
                self.ended.set()
        elif host in self._open and not line.startswith(NOISE):
            shown = line if self._which == "leader" else f"[{host}] {line}"
            with self._one_line:
                print(shown, flush=True)


def watched(call: Call, which: Which) -> Outcome:
    """What became of the call; shows what it prints until then."""
    screen = _Screen(which)
    following = follow(call.place.api, call.namespace, call.id, which, screen.line)
    try:
        found = call.outcome(None, lambda status: tell(call, status), screen.ended)
        screen.ended.wait(_LAST_LINES_SECONDS)
        return found
    except KeyboardInterrupt:
        cancel([call])
        raise
    finally:
        following.stop()


def cancel(calls: Sequence[Call]) -> None:
    """Cancel calls that nobody waits for any more; an interruption leaves those that are not cancelled yet."""
    left = list(calls)
    try:
        while left:
            left[0].cancel()
            _say(f"call {left.pop(0).id} is cancelled")
    except KeyboardInterrupt:
        for call in left:
            _say(f"call {call.id} may run on; find it by multislice.attach({call.id!r}, stack=...)")
        raise


def tell(call: Call, status: Status) -> None:
    """Say the state of a call."""
    _say(f"call {call.id} {status}")


def _say(words: str) -> None:
    print(f"multislice: {words}", file=sys.stderr, flush=True)
