"""A call that somebody waits for: its output on the screen, its states on stderr, and what Ctrl-C does.

Ctrl-C cancels the call, for chips that nobody waits for cost money. A second one while that is under way leaves the
call to itself, and says how to find it again.
"""

import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

from cli.logs.following import follow, hosts, leader
from cli.logs.reading import Line
from cli.observed.pod import LEADER
from infra.api_server import UNREACHABLE
from multislice.call import NOISE, Call, Status
from multislice.outcome import Outcome
from workloads.progress import FunctionBegins, FunctionEnded

Shown = Literal["leader", "all"]
"""The first host of the first slice, whose value is the result; or every host, with its name."""

_LAST_LINES_SECONDS = 3.0
"""For the last lines of a log to arrive, when the result is there already."""


class Screen:
    """Shows what the function prints while it runs, each host's own window of its log."""

    def __init__(self, shown: Shown) -> None:
        self.ended = threading.Event()
        """The first host's function has ended."""
        self.closed = False
        """Nothing more is shown."""
        self._shown: Shown = shown
        self._open: set[str] = set()

    def line(self, line: Line) -> None:
        """Take the next line of a host."""
        if FunctionBegins.parse(line.text):
            self._open.add(line.host)
        elif FunctionEnded.parse(line.text):
            self._open.discard(line.host)
            if line.host == LEADER:
                self.ended.set()
        elif line.host in self._open and not line.text.startswith(NOISE) and not self.closed:
            print(line.text if self._shown == "leader" else f"[{line.host}] {line.text}", flush=True)


def watched(call: Call, shown: Shown) -> Outcome:
    """What became of the call; shows what it prints until then."""
    screen = Screen(shown)

    def read() -> None:
        # The state of the call is asked beside this, and says what there is to say.
        with suppress(LookupError, *UNREACHABLE):
            follow(call.place.api, call.namespace, call.id, leader if shown == "leader" else hosts, screen.line)

    reading = threading.Thread(target=read, name=f"output of {call.id}", daemon=True)
    reading.start()
    try:
        found = call.outcome(None, lambda status: tell(call, status), screen.ended)
        reading.join(_LAST_LINES_SECONDS)
        return found
    except KeyboardInterrupt:
        cancel([call])
        raise
    finally:
        screen.closed = True


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
