"""When the lines of a container's log were written, for `kubectl logs --timestamps` and `--since`.

A container writes to its log file itself, so that it outlives an agent; the times are those at which the file was
seen to have grown, several times a second. Of a log that was written before this agent began, all lines have the time
of the last one.
"""

import bisect
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

POLL_SECONDS = 0.1
"""Between two looks at a log."""

_Growth = tuple[list[int], list[int]]
"""Sizes that a file was seen with, and when, in nanoseconds since the epoch."""


@dataclass
class LogTimes:
    """Of all logs below one folder."""

    folder: Path
    _seen: dict[int, _Growth] = field(default_factory=dict[int, _Growth])
    """By inode, for a restarted container's log is renamed."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, closing: threading.Event) -> None:
        """Look at all logs until `closing` is set."""
        while not closing.wait(POLL_SECONDS):
            for path in self.folder.glob("*/*.log"):
                self.look(path)

    def look(self, path: Path) -> int:
        """Note how large the log is now; its size."""
        try:
            found = path.stat()
        except FileNotFoundError:
            return 0
        with self._lock:
            if found.st_ino not in self._seen:
                # Nobody saw it grow up to here; what it has is as old as its last line.
                self._seen[found.st_ino] = ([], [])
            sizes, times = self._seen[found.st_ino]
            if found.st_size > (sizes[-1] if sizes else 0):
                sizes.append(found.st_size)
                times.append(found.st_mtime_ns if len(sizes) == 1 else time.time_ns())
        return found.st_size

    def lines(self, file: BinaryIO, path: Path, until: int, *, ended: bool) -> Iterator[tuple[int, bytes]]:
        """Lines from the file's position up to `until`, each with its time, no two with the same.

        A last line without its end is left for later, unless the log has `ended`.
        """
        sizes, times = self._growth(path)
        block, counted = -1, 0
        while (begin := file.tell()) < until:
            line = file.readline(until - begin)
            if not line.endswith(b"\n") and not ended:
                file.seek(begin)
                return
            place = min(bisect.bisect_left(sizes, begin + len(line)), len(times) - 1)
            earlier = sizes[place - 1] if place else 0
            if place != block:
                # A line's number within its block must not depend on where the reading began.
                block, counted = place, _lines_between(file, earlier, begin)
            yield times[place] + counted, line
            counted += 1

    def _growth(self, path: Path) -> _Growth:
        with self._lock:
            sizes, times = self._seen[path.stat().st_ino]
            return [*sizes], [*times]


def _lines_between(file: BinaryIO, begin: int, end: int) -> int:
    if end <= begin:
        return 0
    position = file.tell()
    file.seek(begin)
    count = file.read(end - begin).count(b"\n")
    file.seek(position)
    return count
