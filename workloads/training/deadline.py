"""The deadline of a process: what it must finish next, and by when. `watchdog` ends a process that misses it."""

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Expectation:
    """Something that must be finished."""

    what: str
    minutes: float
    due: float
    """Latest time by `time.monotonic()`."""


class Deadline:
    """The current expectation, set by the working thread and read by the watchdog's."""

    def __init__(self):
        self._expected: Expectation | None = None

    def expect(self, what: str, minutes: float) -> None:
        """Expect `what` to be finished within `minutes`. The previous expectation counts as met."""
        self._expected = Expectation(what, minutes, time.monotonic() + 60 * minutes)

    def clear(self) -> None:
        """Remove the expectation."""
        self._expected = None

    def seconds_left(self) -> float:
        """Return the seconds until the deadline, or 0 after it."""
        expected = self._expected
        assert expected, "everything that waits for other hosts needs a deadline"
        return max(0.0, expected.due - time.monotonic())

    def missed(self) -> Expectation | None:
        """Return the expectation if its deadline has passed."""
        expected = self._expected
        return expected if expected and time.monotonic() > expected.due else None
