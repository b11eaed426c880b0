"""Rules of the section `budget`: what a plan may cost at worst."""

from collections.abc import Iterator
from math import floor

from infra.bill import group_bill, job_group_bills, total
from infra.faults import Fault
from infra.rules.draft import Draft, Shapes, listed
from infra.stack_file import HOURS_PER_YEAR, Cloud, Job, JobSlices

_DECIMALS = 4
"""Of amounts and hours that are compared, so that no rounding error breaks a budget."""


def check(draft: Draft, shapes: Shapes) -> Iterator[Fault]:
    """Faults of the section `budget`, its last day aside, which `infra.expiry` judges: it must not stop a destroy."""
    if draft.budget and draft.cloud:
        if draft.budget.usd_per_hour is not None:
            yield from _per_hour(draft, draft.cloud, draft.budget.usd_per_hour, shapes)
        if draft.budget.usd_total is not None and draft.job:
            yield from _total(draft, draft.cloud, draft.job, draft.budget.usd_total, shapes)


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


def _total(draft: Draft, cloud: Cloud, job: Job, limit: float, shapes: Shapes) -> Iterator[Fault]:
    groups = {name: draft.slices[name] for name in job.slices.groups if name in shapes}
    bills = job_group_bills(job, groups, cloud, draft.prices, hours=None)
    yield from _unknown("usd_total", [group.group for group in bills if group.usd_per_hour is None])
    dearest = max((group.usd_per_hour for group in bills if group.usd_per_hour is not None), default=None)
    if dearest is None:
        return
    # More than a year is no legal `job.max_hours`, and neither is nothing.
    affordable = min(floor(round(limit / dearest * 100, _DECIMALS)) / 100, HOURS_PER_YEAR)
    if job.max_hours is None:
        yield Fault(
            "budget.usd_total",
            "a job that is stopped before it costs more, since an estimate of its steps would not stop it",
            "a job without max_hours",
            f"write job.max_hours: {affordable:g}, which {limit:.2f} USD pay at {dearest:.2f} USD per hour"
            if affordable
            else "raise the budget",
        )
    elif round(job.max_hours * dearest, _DECIMALS) > limit:
        yield Fault(
            "budget.usd_total",
            f"a job that costs at most {limit:.2f} USD",
            f"{job.max_hours * dearest:.2f}, since it may hold {_chips(job.slices)} for {job.max_hours:g} hours",
            f"lower job.max_hours to {affordable:g} or raise the budget" if affordable else "raise the budget",
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
