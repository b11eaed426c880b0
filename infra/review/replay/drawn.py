"""Draws a trace from stated distributions."""

from collections.abc import Iterator
from dataclasses import replace
from math import exp, log
from random import Random
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from infra.review.replay.trace import MAX_JOBS, MOST_HOURS, Job, Trace, TraceError, priority_of
from workloads.spec import Number, PositiveInt, Spec

_HOURS_PER_DAY, _MINUTES_PER_HOUR = 24, 60
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

    Raises:
        TraceError: no job was drawn, or more than `MAX_JOBS` may be.
    """
    jobs, end, shortened = list[Job](), distribution.days * _HOURS_PER_DAY, 0
    if (expected := distribution.days * sum(each.jobs_per_day for each in distribution.jobs)) > MAX_JOBS:
        text = f"expected at most {MAX_JOBS} jobs, got {expected:.0f} of jobs_per_day in {distribution.days:g} days"
        raise TraceError([(1, f"{text}; lower them")])
    for number, stream in enumerate(distribution.jobs):
        random = Random(f"{seed}/{number}")
        spread = log(stream.hours.p90 / stream.hours.median) / _P90
        save = None if stream.save_minutes is None else stream.save_minutes / _MINUTES_PER_HOUR
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
    while (at := at + random.expovariate(stream.jobs_per_day / _HOURS_PER_DAY * most)) < end:
        if random.random() * most < (in_peak if int(at % _HOURS_PER_DAY) in _PEAK else others):
            yield at
