"""The jobs of a trace: read from a CSV file, where every error has its row, or drawn from stated distributions."""

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import ceil, exp, floor, inf, isfinite, log
from pathlib import Path
from random import Random
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from infra.review.replay.fleet import Fleet, Place
from infra.stack.kueue import PRIORITIES
from infra.stack.names import HOURS_PER_DAY, MINUTES_PER_HOUR, SECONDS_PER_HOUR
from infra.stack.settings.errors import FieldError, nearest
from workloads.spec import Number, PositiveInt, Spec

MAX_BYTES = 64 << 20
"""Largest size of a file. A month of 13,000 jobs has about 1 MB as CSV."""
MAX_JOBS = 200_000
MOST_HOURS = 366 * HOURS_PER_DAY
"""Longest trace."""
COLUMNS = ("name", "submitted", "team", "shape", "slices", "hours", "priority", "save_minutes", "trace_hours")
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

    def __init__(self, errors: Iterable[tuple[int, str]], jobs: Iterable[Job] = ()) -> None:
        self.errors = sorted(errors)
        self.jobs = tuple(jobs)
        """Jobs whose names of teams and shapes could be read, also from rows with other errors."""
        super().__init__("\n".join(f"row {row}: {text}" for row, text in self.errors))


@dataclass
class Rows:
    """Collects jobs and errors while a trace is read."""

    errors: list[tuple[int, str]]
    jobs: list[Job]
    partial: list[Job] = field(default_factory=list)
    """Jobs of rows with errors, with 1 for each wrong number."""
    hours: float | None = None
    """Length of the trace. `None` if no row says it."""

    def refuse(self, row: int, column: str, expected: str, got: object, fix: str = "correct the row") -> None:
        self.errors.append((row, str(FieldError(column, expected, repr(got), fix))))

    def trace(self, source: str, days: float | None, notes: Sequence[str] = (), until: float = 0.0) -> Trace:
        """Return the trace, which is `days` long. Default: as its rows say, or to the end of the day of the last
        submission or of the time `until`. It begins at hour 0, or with the first job if submissions are dates.

        Raises:
            TraceError: the rows have errors, or there are none.
        """
        if not self.jobs and not self.errors:
            self.errors.append((1, "expected at least one job, got none"))
        first = min((job.submitted for job in self.jobs), default=0.0)
        begin = first if first > MOST_HOURS else 0.0
        jobs = sorted(
            (replace(job, submitted=job.submitted - begin) for job in self.jobs), key=lambda job: job.submitted
        )
        last = floor(jobs[-1].submitted / HOURS_PER_DAY) + 1 if jobs else 1
        whole = max(last, ceil((until - begin) / HOURS_PER_DAY)) * HOURS_PER_DAY
        hours = days * HOURS_PER_DAY if days else self.hours or float(min(whole, MOST_HOURS))
        self._check(jobs, hours)
        if self.errors:
            raise TraceError(self.errors, (*self.jobs, *self.partial))
        return Trace(source, tuple(jobs), hours, tuple(notes))

    def _check(self, jobs: Iterable[Job], hours: float) -> None:
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
                    f"at most {min(hours, MOST_HOURS):g} hours after the begin of the trace",
                    round(job.submitted, 2),
                    _LONGER,
                )


_LONGER = "leave it out, or pass --days"


def read_csv(path: Path, days: float | None) -> Trace:
    """Return the trace of a CSV file with a header. Its columns are `COLUMNS`; the last three may be missing or empty.

    `submitted` is a time in ISO 8601, or a number of hours since the begin of the trace, and `trace_hours` its length.

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
            for name in sorted({name for name in header if header.count(name) > 1}):
                rows.refuse(1, name, "one column of this name", header.count(name), "remove the others")
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
        "submitted",
        f"a time such as 2026-01-05T12:00:00Z, or hours from 0 to {MOST_HOURS}",
        _hours_at,
        lambda at: 0 <= at < inf,
    )
    hours = read("hours", "a number above 0", float, lambda value: 0 < value < inf)
    priority = read("priority", f"{', '.join(PRIORITIES)} or a whole number", priority_of, lambda _: True)
    save = read("save_minutes", "minutes above 0, or nothing", lambda text: float(text or inf), lambda each: each > 0)
    length = read(
        "trace_hours",
        f"hours above 0 up to {MOST_HOURS}, or nothing",
        lambda text: float(text or inf),
        lambda each: 0 < each <= MOST_HOURS or each == inf,
    )
    if isfinite(length):
        rows.hours = rows.hours or length
        if rows.hours != length:
            rows.refuse(row, "trace_hours", f"{rows.hours:g} as in the rows before", length)
    save_hours = save / MINUTES_PER_HOUR if isfinite(save) else None
    job = Job(row, written["name"], written["team"], written["shape"], slices, submitted, hours, priority, save_hours)
    if len(rows.errors) == before:
        return job
    rows.partial.append(job)
    return None


def _hours_at(text: str) -> float:
    """Return a date in hours since 1970, or a number of hours, which is smaller than any date."""
    try:
        hours = float(text)
    except ValueError:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() / SECONDS_PER_HOUR
    if hours > MOST_HOURS:
        # Such as 20260105, which is rather a date.
        raise ValueError(text)
    return hours


def priority_of(text: str) -> int:
    """Return the value of a priority, which is a name or a number. Empty text is the normal priority."""
    known = PRIORITIES.get(text or _NORMAL)
    return int(text) if known is None else known


def write_csv(trace: Trace, path: Path) -> None:
    """Write a trace as CSV, for a repository. It is read as the same jobs."""
    names = {value: name for name, value in PRIORITIES.items()}
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for job in trace.jobs:
            save = "" if job.save_hours is None else f"{job.save_hours * MINUTES_PER_HOUR:.12g}"
            what = (job.name, job.submitted, job.team, job.shape, job.slices, job.hours)
            writer.writerow((*what, names.get(job.priority, job.priority), save, trace.hours))


def misplaced(jobs: Iterable[Job], fleet: Fleet) -> list[tuple[int, str]]:
    """Return the rows and errors of jobs whose team or shape a fleet does not have."""
    rows = Rows([], [])
    for job in jobs:
        place = fleet.place(job.team, job.shape) if job.team and job.shape else None
        if isinstance(place, tuple):
            rows.refuse(job.row, place[0], f"{place[1]} in {fleet.name}", getattr(job, place[0]))
    return rows.errors


def places(trace: Trace, fleet: Fleet) -> list[Place]:
    """Return where each job may run. Raise TraceError if the fleet has no such team or shape."""
    found = {key: fleet.place(*key) for key in {(job.team, job.shape) for job in trace.jobs}}
    places = [place for job in trace.jobs if isinstance(place := found[job.team, job.shape], Place)]
    if len(places) < len(trace.jobs):
        raise TraceError(misplaced(trace.jobs, fleet))
    return places


_PEAK = range(12, 18)
_P90 = 1.2816
"""Standard deviations between the median and the 90th percentile of a normal distribution."""
_Positive = Annotated[Number, Field(gt=0)]
_WorkHours = Annotated[Number, Field(ge=0.001, le=MOST_HOURS)]


class Hours(Spec):
    """Hours of work of a job, distributed log-normally."""

    median: _WorkHours
    p90: _WorkHours
    """Nine of ten jobs are shorter."""

    @model_validator(mode="after")
    def _p90_is_at_least_the_median(self) -> Self:
        if self.p90 < self.median:
            raise ValueError("p90 of at least the median")
        return self


class Stream(Spec):
    """Jobs of one kind, which come at random."""

    team: str
    shape: str
    jobs_per_day: _Positive
    slices: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (1,)
    """Equally likely numbers of slices."""
    hours: Hours
    priority: Literal["low", "normal", "high"] = "normal"
    save_minutes: _Positive | None = None
    """Minutes between two saves. Default: it begins again after each interruption."""
    peak_share: Annotated[Number, Field(ge=0, le=1)] = 0.25
    """Share of the jobs that come between 12 and 18 o'clock. Default: as in any other six hours."""


class Distribution(Spec):
    """What a trace is drawn from."""

    days: Annotated[_Positive, Field(le=366)]
    jobs: tuple[Stream, ...]


def draw(distribution: Distribution, seed: int) -> Trace:
    """Return a trace. The same seed gives the same jobs.

    Raise TraceError if no job was drawn, or more than `MAX_JOBS` may be.
    """
    jobs, end, shortened = list[Job](), distribution.days * HOURS_PER_DAY, 0
    if (expected := distribution.days * sum(each.jobs_per_day for each in distribution.jobs)) > MAX_JOBS:
        text = f"expected at most {MAX_JOBS} jobs, got {expected:.0f} of jobs_per_day in {distribution.days:g} days"
        raise TraceError([(1, f"{text}; lower them")])
    for number, stream in enumerate(distribution.jobs):
        random = Random(f"{seed}/{number}")
        spread = log(stream.hours.p90 / stream.hours.median) / _P90
        save = None if stream.save_minutes is None else stream.save_minutes / MINUTES_PER_HOUR
        for index, at in enumerate(_arrivals(random, stream, end)):
            hours = stream.hours.median * exp(random.gauss(0, spread))
            shortened += hours > end
            name, slices = f"{stream.team}-{number}-{index}", random.choice(stream.slices)
            priority = priority_of(stream.priority)
            jobs.append(Job(0, name, stream.team, stream.shape, slices, at, min(hours, end), priority, save))
    if not jobs:
        raise TraceError([(1, "expected at least one job, and none was drawn; raise jobs_per_day or days")])
    jobs.sort(key=lambda job: (job.submitted, job.name))
    notes = (f"{shortened} jobs are shortened to the {end:g} hours of the trace",) if shortened else ()
    return Trace("drawn jobs", tuple(replace(job, row=row) for row, job in enumerate(jobs, 1)), end, notes)


def _arrivals(random: Random, stream: Stream, end: float) -> Iterator[float]:
    """Yield the hours at which jobs come: at the highest rate, of which some are dropped outside of the peak."""
    in_peak, others = 4 * stream.peak_share, 4 * (1 - stream.peak_share) / 3
    most, at = max(in_peak, others), 0.0
    while (at := at + random.expovariate(stream.jobs_per_day / HOURS_PER_DAY * most)) < end:
        if random.random() * most < (in_peak if int(at % HOURS_PER_DAY) in _PEAK else others):
            yield at
