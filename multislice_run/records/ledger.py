"""Writes lines and records to storage in the background, and the ledger `<start>-<process>.jsonl`.

Object stores cannot append, so the content of a file is kept in memory and a background thread rewrites the whole file.
"""

import json
import os
import re
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Self

from etils import epath

from multislice_run.exit_codes import exit_name
from multislice_run.failures import exit_code
from multislice_run.records import numbered
from multislice_run.records.events import EventName
from multislice_run.records.lines import StepLine

MIN_INTERVAL_SECONDS = 2.0

ENTRIES_PER_PART = 5000
"""Number of lines in one part of the file of steps. Only the last part is rewritten: about 1.5 MB, within a second."""

IDLE_PER_WRITE = 20
"""Pause after a write as a multiple of its duration, so that a long ledger costs at most 5 % of a thread."""
_NUMBERED = re.compile(r"([0-9]{1,9})-([0-9]{1,9})\.jsonl")


class LineFile:
    """JSON lines for one file. It is a context manager that writes the rest when it ends.

    A storage error does not stop training: it is printed, and the next write includes the same lines.
    """

    def __init__(self, path: epath.Path):
        self.path = path
        self.entries: list[str] = []
        self._stored = 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._write_in_background, name=path.name, daemon=True)

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._closed.set()
        self._thread.join()
        self._write()

    @property
    def unstored(self) -> list[str]:
        return self.entries[self._stored :]

    def add(self, facts: Mapping[str, Any]) -> None:
        self.entries.append(json.dumps(numbered(facts)))

    def _write_in_background(self) -> None:
        pause = MIN_INTERVAL_SECONDS
        while not self._closed.wait(pause):
            began = time.monotonic()
            self._write()
            pause = max(MIN_INTERVAL_SECONDS, IDLE_PER_WRITE * (time.monotonic() - began))

    def _write(self) -> None:
        entries = self.entries[:]
        if len(entries) == self._stored:
            return
        try:
            write_whole(self.path, "\n".join(entries) + "\n")
        except Exception as error:  # noqa: BLE001 - each object store has exceptions of its own
            lacking = len(entries) - self._stored
            print(f"{self.path} lacks its last {lacking} entries: {type(error).__name__}: {error}", flush=True)
            return
        self._stored = len(entries)


class Ledger(LineFile):
    """Records events, the last of which is the end of the attempt."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        cause = "done" if error is None else type(error).__name__
        code = 0 if error is None else exit_code(error)
        self.record(EventName.STOP, cause=cause, message=str(error or ""), code=exit_name(code))
        super().__exit__(kind, error, trace)

    def record(self, event: EventName, **facts: object) -> None:
        self.add({"time": round(time.time(), 3), "event": event, **facts})


class StepFile:
    """Writes the lines of steps as `<start>-<part>.jsonl` in a folder. It is a context manager like `LineFile`."""

    def __init__(self, folder: epath.Path, start: int):
        self._folder, self._start = folder, start
        self._part = 0
        self._lines = self._part_file()

    def __enter__(self) -> Self:
        self._lines.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._lines.__exit__(kind, error, trace)

    def add(self, line: StepLine) -> None:
        if len(self._lines.entries) >= ENTRIES_PER_PART:
            self._lines.__exit__(None, None, None)
            self._part += 1
            self._lines = self._part_file().__enter__()
        self._lines.add(line.facts())

    @property
    def unstored(self) -> list[str]:
        return self._lines.unstored

    def _part_file(self) -> LineFile:
        return LineFile(self._folder / f"{self._start}-{self._part}.jsonl")


def add_unstored(folder: epath.Path, start: int, lines: Sequence[str]) -> None:
    """Add to the files of steps of an attempt that was killed those of its last `lines` that they lack."""
    if not lines:
        return
    parts = [path for (first, _), path in _files(folder).items() if first == start]
    last = parts[-1] if parts else folder / f"{start}-0.jsonl"
    stored = last.read_text().splitlines() if parts else []
    newest = json.loads(stored[-1])["time"] if stored else 0.0
    if lacking := [line for line in lines if json.loads(line)["time"] > newest]:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(last, "\n".join([*stored, *lacking]) + "\n")


def next_start(ledgers: epath.Path) -> int:
    """Return the number of the latest attempt that left a ledger, plus one."""
    return max((start + 1 for start, _ in _files(ledgers)), default=0)


_Numbers = tuple[int, int]


def numbered_files(folder: epath.Path) -> tuple[dict[_Numbers, epath.Path], list[epath.Path]]:
    """Return the files `<number>-<number>.jsonl` by their numbers, in order, and other files of that kind."""
    paths = [path for path in folder.iterdir() if path.name.endswith(".jsonl")] if folder.exists() else []
    found = {path: _NUMBERED.fullmatch(path.name) for path in paths}
    files = {(int(name[1]), int(name[2])): path for path, name in found.items() if name}
    return dict(sorted(files.items())), [path for path, name in found.items() if not name]


def _files(folder: epath.Path) -> dict[_Numbers, epath.Path]:
    """Return the numbered files, and report others, which are passed over."""
    files, others = numbered_files(folder)
    for path in others:
        print(f"{path} is not a ledger or a file of steps, and is passed over; remove it", flush=True)
    return files


def write_current(storage: epath.Path, run: str) -> None:
    """Name the run that the next attempt continues."""
    path, text = storage / "current.json", json.dumps(numbered({"run": run}))
    if not (path.exists() and path.read_text() == text):
        write_whole(path, text)


def create(path: epath.Path, text: str) -> bool:
    """Write a file that does not exist yet. False: it exists, and keeps its content.

    Of several processes that do this at once, only one succeeds.
    """
    try:
        if "://" in str(path):
            import fsspec

            # The object appears only when its upload is complete.
            files, place = fsspec.url_to_fs(str(path))
            files.pipe_file(place, text.encode(), mode="create")
            return True
        partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
        partial.write_text(text)
        try:
            os.link(partial, path)
        finally:
            partial.unlink()
    except FileExistsError:
        return False
    return True


def write_whole(path: epath.Path, text: str) -> None:
    """Write a file atomically: readers find the old or the new text, even after a crash."""
    if "://" in str(path):
        # An object appears only when its upload is complete, and a rename would be a copy.
        path.write_text(text)
        return
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text)
    partial.replace(path)
