"""What of a host's log is its function's: the lines between two that its process prints around it."""

import re
from collections.abc import Iterable, Iterator

from workloads.progress import FunctionBegins, FunctionEnded

_NOISE = re.compile(r"\[Gloo\]|.* peer ranks\. Expected number of connected peer ranks")
"""A line that Gloo prints for every group of processes it connects, in pieces, so that its beginning may be lost."""


class FunctionLog:
    """Of one host's log of one call."""

    def __init__(self, call: str) -> None:
        """Begin before the log's first line."""
        self._begins, self._ends = FunctionBegins(call).line(), FunctionEnded(call).line()
        self._open = False
        self.ended = False
        """The function has ended."""

    def line(self, text: str) -> str | None:
        """The log's next line, as far as the function printed it; None: it is another's."""
        if text.endswith(self._begins):
            self._open = True
            return None
        if self._open and text.endswith(self._ends):
            self._open, self.ended = False, True
            # A function need not end its last line, as progress bars do not.
            return text.removesuffix(self._ends) or None
        return text if self._open and not _NOISE.match(text) else None


def of_function(call: str, lines: Iterable[str]) -> Iterator[str]:
    """The lines that the function printed, of all that its host did."""
    log = FunctionLog(call)
    for text in lines:
        if (line := log.line(text)) is not None:
            yield line
