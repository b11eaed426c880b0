"""Reads the lines and records of a run.

What cannot be read is left out and named in notes, and so is a format that is newer than this reader.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any, Self, TypeVar

from etils import epath

from multislice_run.records import FORMAT
from multislice_run.records.events import BY_CLASS
from multislice_run.records.lines import FACTS, Count, FailureRecord, LedgerLine, Moment, parse, within
from multislice_run.worlds import Roll, Worlds

_Kind = TypeVar("_Kind")

_MAX_ATTEMPTS = 100_000


@dataclass(frozen=True)
class Event:
    """A line of `ledger/`."""

    time: float
    name: str
    """An `EventName`, or one that only another version knows."""
    facts: dict[str, Any]

    @classmethod
    def parse(cls, line: Any) -> Self:
        """Return the event of a line, of any format.

        Raises:
            ValueError: the line is not valid.
        """
        found = parse(LedgerLine, line)
        name = BY_CLASS.get(found.event, found.event)
        if name in FACTS:
            parse(FACTS[name], line)
        return cls(found.time, name, {key: value for key, value in line.items() if key not in _OF_EVERY_LINE})


_OF_EVERY_LINE = ("format", "time", "event")


@dataclass(frozen=True)
class World:
    """The newest attempt that the pods of a submission agreed on (`multislice_run.worlds`)."""

    number: Annotated[int, within(0, _MAX_ATTEMPTS)]
    """Number of attempts before it."""
    counted: Count
    """Restarts of processes that count towards `max_restarts`."""
    began: Moment
    ended: int | None
    """Exit code with which the pods ended the job after it. `None`: they did not."""


def read_lines(path: epath.Path, read: Callable[[Any], _Kind], notes: list[str]) -> Iterator[_Kind]:
    """Yield what `read` makes of each line of a JSON Lines file. Lines that cannot be read are added to `notes`."""
    newest = FORMAT
    for number, text in enumerate(path.read_bytes().decode(errors="replace").splitlines(), 1):
        try:
            line = json.loads(text)
            newest = max(newest, _format(line))
            yield read(line)
        except (ValueError, RecursionError):
            notes.append(f"{path.parent.name}/{path.name}, line {number} cannot be read: {text[:40]!r}")
    _note_newer(path, newest, notes)


def read_record(path: epath.Path, read: Callable[[Any], _Kind], notes: list[str]) -> _Kind | None:
    """Return what `read` makes of a JSON file. If it is missing or not valid, add a note and return `None`."""
    try:
        document = json.loads(path.read_bytes())
        _note_newer(path, _format(document), notes)
        return read(document)
    except FileNotFoundError:
        notes.append(f"{path.name} is missing")
    except (ValueError, RecursionError) as fault:
        notes.append(f"{path.parent.name}/{path.name} cannot be read: {_in_short(fault)}")
    return None


def _format(document: Any) -> int:
    found = document.get("format") if isinstance(document, dict) else None
    return found if isinstance(found, int) else 1


def _note_newer(path: epath.Path, number: int, notes: list[str]) -> None:
    if number > FORMAT:
        newer = f"has format {number!r:.20}, newer than {FORMAT}; a newer version of this program reads all of it"
        notes.append(f"{path.parent.name}/{path.name} {newer}")


def _in_short(fault: Exception) -> str:
    return "; ".join(str(fault).splitlines()[:3])


def read_world(storage: epath.Path, run_id: str, notes: list[str]) -> World | None:
    """Return the newest attempt of a submission. `None`: there is none, or its record is damaged, which is noted."""
    try:
        if found := Worlds(storage, run_id).newest():
            ended = Roll(storage, run_id, found.number + 1).ended()
            return parse(World, {**asdict(found), "ended": ended.code if ended else None})
    except (ValueError, RecursionError) as fault:
        notes.append(f"worlds/{run_id} cannot be read: {_in_short(fault)}")
    return None


_NAME = re.compile(r".+-(?P<attempt>[0-9]{1,9})-(?P<began>[0-9]{1,10})\.json")


@dataclass(frozen=True)
class ProcessFailure:
    """A failure and the process that it ended."""

    run_id: str
    """The submission."""
    attempt: int
    """Number of restarts of the job before it."""
    began: int
    """Start time of the process, in whole Unix seconds."""
    failure: FailureRecord


def read_failures(
    storage: epath.Path, notes: list[str], run_ids: Collection[str] | None = None
) -> list[ProcessFailure]:
    """Return the failures of these submissions, oldest first. `None` means all submissions.

    Files that cannot be read are added to `notes`. Records of a failure on another host are skipped.
    """
    folder, names = storage / "failures", ["*"] if run_ids is None else sorted(run_ids)
    paths = [path for name in names for path in sorted(folder.glob(f"{name}/*.json"))]
    return sorted(_read_all(paths, notes), key=lambda ended: ended.failure.time)


def group_by_start(early: Iterable[ProcessFailure], others: Sequence[float]) -> list[list[ProcessFailure]]:
    """Group the failures of attempts that left no other files by attempt.

    `others` are the times when the other attempts began. A host fails once in an attempt, and attempts do not overlap.
    """
    found: list[list[ProcessFailure]] = []
    for ended in sorted(early, key=lambda ended: (ended.run_id, ended.attempt, ended.began)):
        if found and _same_start(found[-1], ended, others):
            found[-1].append(ended)
        else:
            found.append([ended])
    return sorted(found, key=lambda hosts: hosts[0].began)


def _same_start(hosts: Sequence[ProcessFailure], ended: ProcessFailure, others: Sequence[float]) -> bool:
    first = hosts[0]
    attempt = (first.run_id, first.attempt) == (ended.run_id, ended.attempt)
    again = any(each.failure.host == ended.failure.host for each in hosts)
    return attempt and not again and not any(first.began < other <= ended.began for other in others)


def _read_all(paths: Iterable[epath.Path], notes: list[str]) -> Iterator[ProcessFailure]:
    for path in paths:
        name = _NAME.fullmatch(path.name)
        if name is None:
            notes.append(f"failures/{path.parent.name}/{path.name}: expected the name <host>-<restart>-<second>.json")
        elif (record := read_record(path, partial(parse, FailureRecord), notes)) and not record.elsewhere:
            yield ProcessFailure(path.parent.name, int(name["attempt"]), int(name["began"]), record)
