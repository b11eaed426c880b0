"""`multislice plan` shows whether a stack's training jobs fit, how long they take, what they cost and when they end.

The estimates are those of `multislice review`, which come from the results of `multislice preflight`.
"""

from collections.abc import Iterator
from datetime import date, timedelta
from math import ceil, isfinite

from rich.console import Console

from cli import stack_file
from cli.answer import NEGATIVE, Form, Halt, write
from cli.review import review_of
from infra.review.review import JobReview, Pace, Review
from infra.review.table import UNKNOWN, Table
from infra.stack.command_lines import command_line
from workloads.preflight_result import QUOTED_EFFICIENCY
from workloads.spec import Spec


class JobEstimate(Spec):
    """Estimate of a training job that starts on the day of the plan and is not interrupted."""

    job: str
    slices: int
    chips: int
    tokens: float
    fits: bool
    """Whether a step fits in memory. If not, all following fields are `None`."""
    days: float | None = None
    fastest_days: float | None = None
    """Days with the best assumed efficiency of attention kernels. `slowest_days` has those with the worst."""
    slowest_days: float | None = None
    usd: float | None = None
    """Cost in US dollars. `None` also if the price is unknown."""
    ends: date | None = None
    """Day on which the job ends. `None` also after the year 9999."""
    in_time: bool | None = None
    """Whether it meets the deadline. `None` also without a deadline."""


class Plan(Spec):
    """Estimates for the training jobs of a stack."""

    stack: str
    starts: date
    deadline_days: float | None
    jobs: tuple[JobEstimate, ...]

    @property
    def succeeds(self) -> bool:
        """Return whether every job fits and none misses the deadline."""
        return all(job.fits and job.in_time is not False for job in self.jobs)


def plan(stack: str, tokens: float | None, days: float | None, form: Form, console: Console) -> int:
    """Print the plan of a stack. Return 0 if each training job fits and meets the deadline of `days`, else 2.

    `tokens` replaces the number of tokens that each job trains on. Raise Halt with the jobs that have no estimate,
    after the estimates of the others.
    """
    for option, value in (("--tokens", tokens), ("--days", days)):
        if value is not None and not (value > 0 and isfinite(value)):
            raise Halt(f"{option} must be a number above 0, got {value:g}")
    reviewed = review_of(stack_file.find(stack))
    jobs = [job for job in reviewed.jobs if job.plan.training]
    if not jobs:
        raise Halt(f"the stack {reviewed.stack} must have a training job, because others have no step to estimate")
    unknown = {job.plan.name: why for job in jobs if (why := _why_unknown(reviewed.stack, job))}
    known = [job for job in jobs if job.plan.name not in unknown]
    estimates = tuple(_estimate(job, tokens, days, reviewed.made_on) for job in known)
    found = Plan(stack=reviewed.stack, starts=reviewed.made_on, deadline_days=days, jobs=estimates)
    if known:
        write(found.model_dump_json(indent=1), [table(found, reviewed)], form, console)
    if unknown:
        raise Halt("\n".join(f"{name}: {why}" for name, why in unknown.items()))
    return 0 if found.succeeds else NEGATIVE


def table(found: Plan, reviewed: Review) -> Table:
    """Return a row for each job."""
    missing = sorted({each for job in reviewed.bill.jobs for each in job.not_included})
    return Table(
        title="Plan",
        verdict=f"ESTIMATE: {'; '.join(_verdict(job, found) for job in found.jobs)}",
        state="good" if found.succeeds else "bad",
        columns=("job", "slices", "chips", "tokens", "days", "25 to 50 %", "$", "ends"),
        rows=[[*_cells(job)] for job in found.jobs],
        notes=[
            f"The jobs start on {found.starts}. Attention kernels reach {QUOTED_EFFICIENCY:.0%} of a chip's peak, or 25"
            " to 50 %.",
            f"Not included: {'; '.join(missing)}.",
        ],
    )


def _why_unknown(stack: str, job: JobReview) -> str:
    if job.preflight is None:
        return f"its step is not compiled yet; run `{command_line('preflight', stack)}`"
    return job.preflight.unsupported or ""


def _estimate(job: JobReview, tokens: float | None, days: float | None, starts: date) -> JobEstimate:
    assert job.plan.training
    wanted = tokens or job.plan.training.tokens
    share = wanted / job.plan.training.tokens
    basis = JobEstimate(
        job=job.plan.name, slices=job.plan.slices, chips=job.plan.chips, tokens=wanted, fits=bool(job.paces)
    )
    if not job.paces:
        return basis
    quoted: Pace = next(pace for pace in job.paces if pace.kernel_efficiency == QUOTED_EFFICIENCY)
    every = [pace.days * share for pace in job.paces]
    found = {
        "days": quoted.days * share,
        "fastest_days": min(every),
        "slowest_days": max(every),
        "usd": None if quoted.usd is None else quoted.usd * share,
        "ends": _day_after(starts, quoted.days * share),
        "in_time": None if days is None else quoted.days * share <= days,
    }
    return basis.model_copy(update=found)


def _day_after(starts: date, days: float) -> date | None:
    try:
        return starts + timedelta(days=ceil(days))
    except OverflowError:
        return None


def _verdict(job: JobEstimate, found: Plan) -> str:
    if job.days is None:
        return f"{job.job} does not fit; to see what would: multislice preflight -s {found.stack}"
    cost = "an unknown price" if job.usd is None else f"${job.usd:,.0f}"
    late = f", later than {found.deadline_days:g} days" if job.in_time is False else ""
    return f"{job.job} takes {job.days:,.1f} days for {cost}{late}"


def _cells(job: JobEstimate) -> Iterator[str]:
    yield from (job.job, str(job.slices), str(job.chips), f"{job.tokens:.3g}")
    if job.days is None:
        yield from ("does not fit", "", "", "")
        return
    yield from (f"{job.days:,.1f}", f"{job.slowest_days:,.1f} to {job.fastest_days:,.1f}")
    yield UNKNOWN if job.usd is None else f"{job.usd:,.0f}"
    yield "after 9999" if job.ends is None else str(job.ends)
