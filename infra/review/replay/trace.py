"""The jobs of a trace: read from a CSV file. Every error is reported with its row."""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import ceil, inf, isfinite
from pathlib import Path

from infra.review.replay.fleet import Fleet, Place
from infra.stack.kueue import PRIORITIES
from infra.stack.settings.errors import FieldError, nearest

_HOURS_PER_DAY, _SECONDS_PER_HOUR, _MINUTES_PER_HOUR = 24, 3600, 60
MAX_BYTES = 64 << 20
"""Largest size of a file. A month of 13,000 jobs has about 1 MB as CSV."""
MAX_JOBS = 200_000
MOST_HOURS = 366 * _HOURS_PER_DAY
"""Longest trace."""
COLUMNS = ("name", "submitted", "team", "shape", "slices", "hours", "priority", "save_minutes")
_REQUIRED = COLUMNS[:6]
_NORMAL = "normal"


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a trace."""

    row: int
    """Row of the file, from 1; its place in the file for a trace without rows."""
    name: str
    team: str
    shape: str
    """Shape of a slice: a topology, a type such as `v6e-16`, or the name of a slice group or flavor."""
    slices: int
    submitted: float
    """Hours since the begin of the trace."""
    hours: float
    """Hours of work without interruptions."""
    priority: int
    save_hours: float | None
    """Hours between two saves. `None` if it starts from the beginning after each interruption."""


@dataclass(frozen=True)
class Trace:
    """Jobs in the order of their submission."""

    source: str
    jobs: tuple[Job, ...]
    hours: float
    """Length of the trace: what happens later is not simulated."""
    notes: tuple[str, ...] = ()
    """What was assumed, and what was left out."""


class TraceError(ValueError):
    """Raised for a trace with errors. It has all of them, each with its row."""

    def __init__(self, errors: Iterable[tuple[int, str]]) -> None:
        self.errors = sorted(errors)
        super().__init__("\n".join(f"row {row}: {text}" for row, text in self.errors))


@dataclass
class Rows:
    """Collects jobs and errors while a trace is read."""

    errors: list[tuple[int, str]]
    jobs: list[Job]

    def refuse(self, row: int, column: str, expected: str, got: object, fix: str = "correct the row") -> None:
        self.errors.append((row, str(FieldError(column, expected, repr(got), fix))))

    def trace(self, source: str, days: float | None, notes: Sequence[str] = (), until: float = 0.0) -> Trace:
        """Return the trace, which is `days` long. Default: from the first to the last submission, or to the time
        `until` if that is later, in whole days.

        Raises:
            TraceError: the rows have errors, or there are none.
        """
        if not self.jobs and not self.errors:
            self.errors.append((1, "expected at least one job, got none"))
        begin = min((job.submitted for job in self.jobs), default=0.0)
        jobs = sorted(
            (replace(job, submitted=job.submitted - begin) for job in self.jobs), key=lambda job: job.submitted
        )
        last = max(until - begin, jobs[-1].submitted) if jobs else 0.0
        hours = days * _HOURS_PER_DAY if days else max(1, ceil(last / _HOURS_PER_DAY)) * float(_HOURS_PER_DAY)
        self._check(jobs, hours)
        if self.errors:
            raise TraceError(self.errors)
        return Trace(source, tuple(jobs), hours, tuple(notes))

    def _check(self, jobs: Iterable[Job], hours: float) -> None:
        """Find what is wrong with the jobs together."""
        rows: dict[str, int] = {}
        for job in sorted(jobs, key=lambda job: job.row):
            if (first := rows.setdefault(job.name, job.row)) != job.row:
                self.refuse(job.row, "name", f"a new name, because row {first} has this one", job.name, "rename it")
            if job.hours > hours:
                self.refuse(job.row, "hours", f"at most the {hours:g} hours of the trace", job.hours, _LONGER)
            if job.submitted > min(hours, MOST_HOURS):
                self.refuse(
                    job.row,
                    "submitted",
                    f"at most {min(hours, MOST_HOURS):g} hours after the first job",
                    round(job.submitted, 2),
                    _LONGER,
                )


_LONGER = "leave it out, or pass --days"


def read_csv(path: Path, days: float | None) -> Trace:
    """Return the trace of a CSV file with a header. Its columns are `COLUMNS`; the last two may be missing or empty.

    `submitted` is a time in ISO 8601, or a number of hours.

    Raises:
        TraceError: it has errors.
        OSError: it cannot be read.
    """
    check_size(path)
    rows = Rows([], [])
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            header = [name.strip() for name in reader.fieldnames or ()]
            reader.fieldnames = header
            for name in (name for name in header if name not in COLUMNS):
                meant = nearest(name, COLUMNS)
                rows.errors.append(
                    (1, f"{name}: {f'did you mean {meant}? ' if meant else ''}no such column; remove it")
                )
            if missing := [name for name in _REQUIRED if name not in header]:
                rows.errors.append(
                    (1, f"expected the columns {', '.join(COLUMNS)}, got none named {', '.join(missing)}")
                )
            if not rows.errors:
                _read_rows(reader, rows)
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError([(1, f"expected CSV in UTF-8, got: {error}")]) from None
    return rows.trace(path.name, days)


def check_size(path: Path) -> None:
    """Raise TraceError if a file is too large to be read."""
    if (size := path.stat().st_size) > MAX_BYTES:
        expected = f"expected at most {MAX_BYTES >> 20} MiB, got {size / (1 << 20):.0f} MiB"
        raise TraceError([(1, f"{expected}; write a CSV, or the workloads of some namespaces")])


def _read_rows(reader: "csv.DictReader[str]", rows: Rows) -> None:
    for written in reader:
        row = reader.line_num
        if len(rows.jobs) >= MAX_JOBS:
            rows.errors.append((row, f"expected at most {MAX_JOBS} jobs, got more; split the trace"))
            return
        if None in written or None in written.values():
            rows.errors.append((row, f"expected {len(reader.fieldnames or ())} values, got another number of them"))
            continue
        if job := read_row(row, {name: text.strip() for name, text in written.items()}, rows):
            rows.jobs.append(job)


def read_row(row: int, written: Mapping[str, str], rows: Rows) -> Job | None:
    """Return the job of a row, or report its errors."""
    before = len(rows.errors)

    def read[Value](column: str, expected: str, parse: Callable[[str], Value], valid: Callable[[Value], bool]) -> Value:
        text = written.get(column, "")
        try:
            if valid(value := parse(text)):
                return value
        except ValueError:
            pass
        rows.refuse(row, column, expected, text)
        return parse("1")

    for column in ("name", "team", "shape"):
        if not written[column]:
            rows.refuse(row, column, "a name", written[column])
    slices = read("slices", "a whole number from 1", int, lambda value: value >= 1)
    submitted = read(
        "submitted", "a time such as 2026-01-05T12:00:00Z, or hours from 0", _hours_at, lambda at: 0 <= at < inf
    )
    hours = read("hours", "a number above 0", float, lambda value: 0 < value < inf)
    priority = read("priority", f"{', '.join(PRIORITIES)} or a whole number", priority_of, lambda _: True)
    save = read("save_minutes", "minutes above 0, or nothing", lambda text: float(text or inf), lambda each: each > 0)
    if len(rows.errors) > before:
        return None
    save_hours = save / _MINUTES_PER_HOUR if isfinite(save) else None
    return Job(row, written["name"], written["team"], written["shape"], slices, submitted, hours, priority, save_hours)


def _hours_at(text: str) -> float:
    """Return a time in hours since 1970, or a number of hours."""
    try:
        return float(text)
    except ValueError:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() / _SECONDS_PER_HOUR


def priority_of(text: str) -> int:
    """Return the value of a priority, which is a name or a number. Empty text is the normal priority."""
    known = PRIORITIES.get(text or _NORMAL)
    return int(text) if known is None else known


def write_csv(trace: Trace, path: Path) -> None:
    """Write a trace as CSV, for a repository."""
    names = {value: name for name, value in PRIORITIES.items()}
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for job in trace.jobs:
            save = "" if job.save_hours is None else f"{job.save_hours * _MINUTES_PER_HOUR:g}"
            numbers = (f"{job.submitted:.4f}", job.team, job.shape, job.slices, f"{job.hours:.4f}")
            writer.writerow((job.name, *numbers, names.get(job.priority, job.priority), save))


def places(trace: Trace, fleet: Fleet) -> list[Place]:
    """Return where each job may run.

    Raises:
        TraceError: the fleet has no such team or shape.
    """
    found = {key: fleet.place(*key) for key in {(job.team, job.shape) for job in trace.jobs}}
    rows = Rows([], [])
    for job in trace.jobs:
        place = found[job.team, job.shape]
        if not isinstance(place, Place):
            column, expected = place
            rows.refuse(job.row, column, f"{expected} in {fleet.name}", getattr(job, column))
    if rows.errors:
        raise TraceError(rows.errors)
    return [place for job in trace.jobs if isinstance(place := found[job.team, job.shape], Place)]
