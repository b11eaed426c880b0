"""What a process is expected to finish, and by when.

Owns the one expectation that holds at a time. Says nothing of what happens when it is not met: see `watchdog`.
"""

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Expectation:
    """One thing that must be finished."""

    what: str
    minutes: float
    due: float
    """`time.monotonic()` seconds."""


class Deadline:
    """Set by the thread that works, read by the one that watches it."""

    def __init__(self):
        self._expected: Expectation | None = None

    def expect(self, what: str, minutes: float) -> None:
        """From now on `what` must be finished within `minutes`; what was expected before is."""
        self._expected = Expectation(what, minutes, time.monotonic() + 60 * minutes)

    def clear(self) -> None:
        """Nothing is expected any more."""
        self._expected = None

    def seconds_left(self) -> float:
        """Until what is expected must be finished; 0 when it should have been."""
        expected = self._expected
        assert expected, "whatever waits for other hosts must be expected to end"
        return max(0.0, expected.due - time.monotonic())

    def missed(self) -> Expectation | None:
        """What should have been finished by now."""
        expected = self._expected
        return expected if expected and time.monotonic() > expected.due else None
