"""How lines and records reach storage while training goes on, and the ledger of one process and start.

Owns files that grow in the background and the ledger `<start>-<process>.jsonl`. Object stores cannot append, so
what a file holds is kept in memory and a background thread writes the whole file anew; what the events mean is up
to those who record them.
"""

import json
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from etils import epath

from workloads.spec import ExitCode
from workloads.training.failures import exit_code

SHORTEST_INTERVAL_SECONDS = 2.0

IDLE_PER_WRITE = 20
"""Pause at least this many times the last write's duration, so that a long ledger costs at most 5 % of a thread."""

ENTRIES_PER_PART = 5000
"""Of a file that would grow with the run; about 1.5 MB, which is written anew within a second."""


class LineFile:
    """JSON lines on their way to one file; a context manager that writes the rest when it ends.

    Storage that fails costs no training: it is told, the lines are kept, and the next write takes them along.
    """

    def __init__(self, path: epath.Path):
        self.path = path
        self._entries: list[str] = []
        self._stored = 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._write_in_background, name=path.name, daemon=True)

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closed.set()
        self._thread.join()
        self._write()

    @property
    def count(self) -> int:
        """Entries so far."""
        return len(self._entries)

    def add(self, **facts: object) -> None:
        """One more line, which will be in storage soon."""
        self._entries.append(json.dumps(facts))

    def _write_in_background(self) -> None:
        pause = SHORTEST_INTERVAL_SECONDS
        while not self._closed.wait(pause):
            began = time.monotonic()
            self._write()
            pause = max(SHORTEST_INTERVAL_SECONDS, IDLE_PER_WRITE * (time.monotonic() - began))

    def _write(self) -> None:
        entries = self._entries[:]
        if len(entries) == self._stored:
            return
        try:
            write_whole(self.path, "\n".join(entries) + "\n")
        except Exception as error:  # noqa: BLE001 - each object store has exceptions of its own
            lacking = len(entries) - self._stored
            print(f"{self.path} lacks its last {lacking} entries: {type(error).__name__}: {error}", flush=True)
            return
        self._stored = len(entries)


class Parts:
    """A file cut into parts, so that only the last one is ever written anew; a context manager."""

    def __init__(self, open_part: Callable[[int], LineFile]):
        self._open = open_part
        self._number = 0

    def __enter__(self) -> Self:
        self._file = self._open(self._number).__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.__exit__(kind, error, traceback)

    def last(self) -> LineFile:
        """The part with room for one more entry."""
        if self._file.count >= ENTRIES_PER_PART:
            self._file.__exit__(None, None, None)
            self._number += 1
            self._file = self._open(self._number).__enter__()
        return self._file


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
        cause = "done" if error is None else type(error).__name__
        code = ExitCode.DONE if error is None else exit_code(error)
        self.record("stop", cause=cause, message=str(error or ""), code=code.name)
        self._file.__exit__(kind, error, traceback)

    def record(self, event: str, **facts: object) -> None:
        """Add one event with the present time."""
        self._file.add(time=round(time.time(), 3), event=event, **facts)


def write_whole(path: epath.Path, text: str) -> None:
    """Whoever reads `path` finds the text before or the text now, also after a crash."""
    if "://" in str(path):
        # An object appears when its upload is complete, and a rename would be a copy.
        path.write_text(text)
        return
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text)
    partial.replace(path)
