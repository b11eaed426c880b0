"""How far a container's log has been read: enough to go on after a break without loss or repetition.

The API server gives each line the time at which it was written, and takes whole seconds to begin from. So a new
connection begins a second before the newest line, and what was read of these seconds is skipped, line by line. A
count of lines would not do: kubelet begins a new file when one is full, and forgets the old one.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

_MARGIN = timedelta(seconds=1)
"""Standard output and standard error are stamped apart, so a line may come a little after a later one."""


@dataclass(frozen=True)
class Line:
    """One line of a host's output."""

    host: str
    """Name of the host within its job, such as `slice-0-1`."""
    attempt: int
    """Restarts of the job before the start that printed it."""
    at: str
    """When it was written, as the API server says; empty for a word of kubelet itself."""
    text: str


@dataclass(frozen=True)
class Window:
    """The part of a log to begin with."""

    tail_lines: int | None = None
    """The last so many; None: all."""
    since: datetime | None = None
    """From then on; None: from the first line."""

    def query(self) -> dict[str, str]:
        """As the API server is asked."""
        asked = {"timestamps": "true"}
        if self.tail_lines is not None:
            asked["tailLines"] = str(self.tail_lines)
        if self.since is not None:
            asked["sinceTime"] = _stamp(self.since)
        return asked


WHOLE = Window()


@dataclass
class Reading:
    """How far one container's log has been read."""

    window: Window
    _first: str = ""
    _newest: datetime | None = None
    _recent: Counter[str] = field(default_factory=Counter[str])
    """Lines that a new connection would bring again."""

    def query(self) -> Mapping[str, str]:
        """What to ask the next connection for."""
        if self._newest is None:
            return self.window.query()
        return Window(since=self._newest - _MARGIN).query()

    def connection(self) -> Callable[[str], bool]:
        """For one connection: whether a line of it is new. Ask in the order of the lines, once for each."""
        again = Counter(self._recent)

        def is_new(line: str) -> bool:
            if again[line]:
                again[line] -= 1
                return False
            stamp = line.partition(" ")[0]
            written = moment(stamp)
            if written is not None and self._first and stamp < self._first:
                # The window had left it out.
                return False
            self._remember(line, written)
            return True

        return is_new

    def _remember(self, line: str, written: datetime | None) -> None:
        self._recent[line] += 1
        if written is None:
            return
        self._first = self._first or line.partition(" ")[0]
        second = written.replace(microsecond=0)
        if self._newest is None or second > self._newest:
            self._newest = second
            self._forget(second - _MARGIN)

    def _forget(self, before: datetime) -> None:
        kept = {line: count for line, count in self._recent.items() if (moment(line) or before) >= before}
        self._recent = Counter(kept)


def moment(line: str) -> datetime | None:
    """When a line was written; None: it does not say."""
    stamp = line.partition(" ")[0]
    try:
        return datetime.fromisoformat(stamp).astimezone(UTC)
    except ValueError:
        return None


def _stamp(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
