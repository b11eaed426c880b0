"""The ledger of one process and start: what happened when, as JSON lines.

Owns the file `<start>-<process>.jsonl`, and how lines reach storage. Object stores cannot append, so lines are
kept in memory and a background thread writes the whole file anew; what the events mean is up to those who
record them.
"""

import json
import threading
import time
from types import TracebackType
from typing import Self

from etils import epath

SHORTEST_INTERVAL_SECONDS = 2.0

IDLE_PER_WRITE = 20
"""Pause at least this many times the last write's duration, so that a long ledger costs at most 5 % of a thread."""


class LineFile:
    """Lines on their way to one file; a context manager that writes the rest when it ends."""

    def __init__(self, path: epath.Path):
        self._path = path
        self._lines: list[str] = []
        self._written = 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._write_in_background, name=path.name, daemon=True)

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join()
        self._write()

    def add(self, **facts: object) -> None:
        """One more line, as JSON."""
        self._lines.append(json.dumps(facts))

    @property
    def count(self) -> int:
        """Lines so far."""
        return len(self._lines)

    def _write_in_background(self) -> None:
        pause = SHORTEST_INTERVAL_SECONDS
        while not self._closed.wait(pause):
            began = time.monotonic()
            self._write()
            pause = max(SHORTEST_INTERVAL_SECONDS, IDLE_PER_WRITE * (time.monotonic() - began))

    def _write(self) -> None:
        count = len(self._lines)
        if count > self._written:
            _write_whole(self._path, "\n".join(self._lines[:count]) + "\n")
            self._written = count


class Ledger:
    """Records events; a context manager that writes the rest when it ends."""

    def __init__(self, path: epath.Path):
        self._file = LineFile(path)

    def __enter__(self) -> Self:
        self._file.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.record("stop", cause="done" if error is None else type(error).__name__, message=str(error or ""))
        self._file.__exit__(kind, error, traceback)

    def record(self, event: str, **facts: str | float | None) -> None:
        """Add one event with the present time."""
        self._file.add(time=round(time.time(), 3), event=event, **facts)


def _write_whole(path: epath.Path, text: str) -> None:
    """Whoever reads `path` finds the text before or the text now, also after a crash."""
    if "://" in str(path):
        # An object appears when its upload is complete, and a rename would be a copy.
        path.write_text(text)
        return
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text)
    partial.replace(path)
