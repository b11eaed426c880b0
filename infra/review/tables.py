"""The details of a review as tables: obstacles, price and queue, and for each training job those in `chip_tables`."""

from collections.abc import Iterable
from dataclasses import replace

from infra.review.answers import more, queue_answer, spent, submission_answers
from infra.review.chip_tables import chip_tables
from infra.review.review import Review
from infra.review.table import UNKNOWN, Table
from infra.stack.cost import (
    HOURS_PER_DAY,
    Amount,
    Bill,
    Delta,
    GroupBill,
    JobBill,
    JobGroupBill,
    SweepBill,
    dollars,
    signed_per_hour,
)


def tables(review: Review) -> list[Table]:
    """Return the tables about a stack, in order."""
    of_steps = (table for job in review.jobs for table in chip_tables(review, job))
    return _fold((*_ready(review), *_existing(review), _price(review), _queue(review), *of_steps))


def submission_tables(review: Review) -> list[Table]:
    """Return the tables about jobs that a member submits to a stack, in order."""
    of_steps = (table for job in review.jobs if job.preflight for table in chip_tables(review, job))
    return _fold((*_ready(review), _job_price(review), _queue(review), *of_steps))


def _fold(found: Iterable[Table]) -> list[Table]:
    return [replace(table, folded=True) for table in found]


def _job_price(review: Review) -> Table:
    """Return the price of jobs while they hold their chips."""
    (price, *_), bill = submission_answers(review), review.bill
    return Table(
        title=price.title,
        verdict=price.verdict,
        state=price.state,
        columns=("job", "chips", "group", "capacity", "$/h", "$/day"),
        rows=[
            (job.name, str(job.chips), each.group, each.capacity, _amount(each.usd_per_hour, 2), _day(each))
            for job in bill.jobs
            for each in job.groups
        ],
        notes=[line for job in bill.jobs for line in _most(job)],
    )


def _day(group: JobGroupBill) -> str:
    return _amount(None if group.usd_per_hour is None else HOURS_PER_DAY * group.usd_per_hour, 2)


def _ready(review: Review) -> Iterable[Table]:
    """Yield what `up` refuses and what a person has to check, if anything."""
    notes = [f"- {line}" for line in (*review.refused, *review.doubts)]
    if review.refused:
        yield Table("Ready", "NO: `up` refuses this stack", "bad", notes=notes)
    elif review.doubts:
        yield Table("Ready", "perhaps: check these values, which cannot be verified from here", "notable", notes=notes)


def _existing(review: Review) -> Iterable[Table]:
    if review.existing:
        verdict = "the stack joins what exists already, and a destroy leaves it as it was"
        yield Table("Existing", verdict, "good", notes=[f"- {line}" for line in review.existing])


def _price(review: Review) -> Table:
    bill = review.bill
    return Table(
        title="Price",
        verdict=spent(bill),
        state="notable" if bill.at_most.unknown else "good",
        columns=("group", "slices", "shape", "chips", "capacity", "$/chip h", "$/h", "$/day", "$/month"),
        whole=range(9),
        spare=(8, 5),
        rows=[*map(_group, bill.groups), *_sums(bill)],
        notes=[
            *_sources(bill),
            *(line for job in bill.jobs for line in _most(job)),
            *(_all_runs(sweep) for sweep in bill.sweeps),
            *(_difference(bill.delta) if bill.delta else ()),
            f"Not included: {'; '.join(bill.not_included)}.",
        ],
    )


def _group(group: GroupBill) -> tuple[str, ...]:
    return (
        group.name,
        str(group.slices),
        f"{group.generation} {group.topology}",
        str(group.chips),
        group.capacity,
        _amount(group.rate.usd_per_chip_hour, 4),
        _amount(group.usd_per_hour, 2),
        _amount(None if group.usd_per_hour is None else group.usd_per_hour * HOURS_PER_DAY, 0),
        _amount(group.usd_per_month, 0),
    )


def _sums(bill: Bill) -> Iterable[tuple[str, ...]]:
    if len(bill.by_capacity) > 1:
        yield from (_sum(f"all {kind}", amount) for kind, amount in bill.by_capacity.items())
    if len(bill.groups) > 1 or bill.at_most != bill.at_once:
        yield _sum("at once", bill.at_once)
        yield _sum("at most", bill.at_most)


def _sum(name: str, amount: Amount) -> tuple[str, ...]:
    usd = amount.usd_per_hour
    cells = (_known(amount, usd, 2), _known(amount, usd * HOURS_PER_DAY, 0), _known(amount, amount.usd_per_month, 0))
    return (name, "", "", "", "", "", *cells)


def _known(amount: Amount, usd: float, decimals: int) -> str:
    """Return a sum, marked if unknown amounts have to be added."""
    if not amount.unknown:
        return _amount(usd, decimals)
    return f"{_amount(usd, decimals)} + ?" if usd else UNKNOWN


def _sources(bill: Bill) -> Iterable[str]:
    for group in bill.groups:
        rate = group.rate
        place = f", {rate.place}" if rate.place else ""
        dated = f", {rate.date}" if rate.date else ""
        yield f"{group.name}: {rate.source}{place}{dated}."


def _most(job: JobBill) -> Iterable[str]:
    for group in job.groups:
        if group.usd_at_most is not None:
            most = dollars(group.usd_at_most)
            yield f"{job.name} is stopped after {job.max_hours:g} hours: at most {most} on {group.group}."


def _all_runs(sweep: SweepBill) -> str:
    """Return the cost of a sweep, with a note that its runs are queued one after another."""
    amounts = (
        (sweep.usd, "{} for all steps by the estimates"),
        (sweep.usd_at_most, "at most {}, when each is stopped by its max_hours"),
    )
    known = [text.format(dollars(usd)) for usd, text in amounts if usd is not None]
    cost = "; ".join(known) or "at an unknown price, since they have neither estimates nor max_hours"
    return f"{sweep.name}: {sweep.runs} runs, queued one after another for team {sweep.team}; together {cost}."


def _difference(delta: Delta) -> Iterable[str]:
    if not delta.groups:
        yield "Same cost as the deployed stack."
        return
    changes = (
        f"{change.name} {change.chips_before} to {change.chips} chips,"
        f" {UNKNOWN if change.usd_per_hour is None else signed_per_hour(change.usd_per_hour)}"
        for change in delta.groups
    )
    yield (
        f"Compared with the deployed stack: {more(delta.at_once)} at once,"
        f" {more(delta.at_most)} at most; {'; '.join(changes)}."
    )


def _queue(review: Review) -> Table:
    answer, notes = queue_answer(review), list[str]()
    for job in review.jobs:
        headline, *details = job.admission.lines
        notes += [f"{headline}.", *(f"- {line}" for line in details)]
    # The same for most jobs, so it is said once.
    notes += [f"- {line}" for line in dict.fromkeys(line for job in review.jobs for line in job.admission.unknown)]
    return Table(answer.title, answer.verdict, answer.state, notes=notes)


def _amount(amount: float | None, decimals: int) -> str:
    return UNKNOWN if amount is None else f"{amount:,.{decimals}f}"
