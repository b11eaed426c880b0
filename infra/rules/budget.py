"""Rules of the section `budget`: what a plan may cost at worst."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor

from infra.bill import group_bill, job_group_bills, total
from infra.faults import Fault
from infra.jobs import HOURS_PER_YEAR, Job, JobSlices
from infra.rules.draft import Draft, Shapes, listed
from infra.stack_file import Cloud

_DECIMALS = 4
"""Of amounts and hours that are compared, so that no rounding error breaks a budget."""


def check(draft: Draft, shapes: Shapes) -> Iterator[Fault]:
    """Faults of the section `budget`, its last day aside, which `infra.expiry` judges: it must not stop a destroy."""
    if draft.budget and draft.cloud:
        if draft.budget.usd_per_hour is not None:
            yield from _per_hour(draft, draft.cloud, draft.budget.usd_per_hour, shapes)
        if draft.budget.usd_total is not None:
            yield from _total(draft, draft.cloud, draft.budget.usd_total, shapes)


def _per_hour(draft: Draft, cloud: Cloud, limit: float, shapes: Shapes) -> Iterator[Fault]:
    costs = {name: group_bill(name, draft.slices[name], cloud, draft.prices).usd_per_hour for name in shapes}
    amount = total(costs)
    yield from _unknown("usd_per_hour", amount.unknown)
    if amount.usd_per_hour > limit:
        parts = ", ".join(f"{name} {usd:.2f}" for name, usd in costs.items() if usd is not None)
        yield Fault(
            "budget.usd_per_hour",
            f"slices that cost at most {limit:.2f} USD per hour when all are there",
            f"{amount.usd_per_hour:.2f} ({parts})",
            "lower the count of a slice group or raise the budget",
        )


@dataclass(frozen=True)
class _Priced:
    """A job and what it costs at worst."""

    path: str
    job: Job
    usd_per_hour: float
    """On the dearest of its groups."""

    @property
    def usd(self) -> float:
        """Over all its hours; nothing where it has no last one."""
        return (self.job.max_hours or 0) * self.usd_per_hour


def _total(draft: Draft, cloud: Cloud, limit: float, shapes: Shapes) -> Iterator[Fault]:
    priced: list[_Priced] = []
    unknown: dict[str, None] = {}
    for path, job in draft.readable_jobs:
        groups = {name: draft.slices[name] for name in job.slices.groups if name in shapes}
        bills = job_group_bills(job, groups, cloud, draft.prices, hours=None)
        unknown |= dict.fromkeys(group.group for group in bills if group.usd_per_hour is None)
        if known := [group.usd_per_hour for group in bills if group.usd_per_hour is not None]:
            priced.append(_Priced(path, job, max(known)))
    yield from _unknown("usd_total", list(unknown))
    for path, each in {each.path: each for each in priced}.items():
        # The runs of a sweep have one section, and so one max_hours.
        runs = sum(other.path == path for other in priced)
        left = limit - sum(other.usd for other in priced if other.path != path)
        yield from _endless(each, left / runs)
    if round(sum(each.usd for each in priced), _DECIMALS) > limit:
        yield _too_dear(priced, limit)


def _affordable_hours(priced: _Priced, usd: float) -> float:
    """More than a year is no legal `max_hours`, and neither is nothing."""
    return max(0, min(floor(round(usd / priced.usd_per_hour * 100, _DECIMALS)) / 100, HOURS_PER_YEAR))


def _endless(priced: _Priced, left: float) -> Iterator[Fault]:
    """The fault of a job without an end; `left` is what the others leave of the budget."""
    if priced.job.max_hours is None:
        affordable = _affordable_hours(priced, left)
        yield Fault(
            "budget.usd_total",
            "a job that is stopped before it costs more, since an estimate of its steps would not stop it",
            f"{'a job' if priced.path == 'job' else f'job {priced.job.name}'} without max_hours",
            f"write {priced.path}.max_hours: {affordable:g}, which {left:.2f} USD pay at {priced.usd_per_hour:.2f} USD"
            " per hour"
            if affordable
            else "raise the budget",
        )


def _too_dear(priced: list[_Priced], limit: float) -> Fault:
    if len(priced) > 1:
        costs = ", ".join(f"{each.job.name} {each.usd:.2f}" for each in priced)
        return Fault(
            "budget.usd_total",
            f"jobs that cost at most {limit:.2f} USD together",
            f"{sum(each.usd for each in priced):.2f} ({costs})",
            "lower max_hours of some of them or raise the budget",
        )
    (only,) = priced
    job, affordable = only.job, _affordable_hours(only, limit)
    return Fault(
        "budget.usd_total",
        f"a job that costs at most {limit:.2f} USD",
        f"{only.usd:.2f}, since it may hold {_chips(job.slices)} for {job.max_hours:g} hours",
        f"lower {only.path}.max_hours to {affordable:g} or raise the budget" if affordable else "raise the budget",
    )


def _chips(slices: JobSlices) -> str:
    return f"{slices.count} slice{'s' if slices.count > 1 else ''} of {' or '.join(slices.groups)}"


def _unknown(setting: str, groups: list[str] | tuple[str, ...]) -> Iterator[Fault]:
    if groups:
        yield Fault(
            f"budget.{setting}",
            "a price of every slice group that it limits",
            f"none of {listed(groups)}",
            f"write what a chip hour costs you: {', '.join(f'prices.usd_per_chip_hour.{name}' for name in groups)}",
        )
