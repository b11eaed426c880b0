"""A review as tables: what stands in the way, price, queue, chips.

Owns what a person reads of price and queue, and in which words; of the chips that is `infra.review.chips`. How tables
look is the business of `infra.review.table`.
"""

from collections.abc import Iterable, Mapping

from infra.admission.verdict import Outcome
from infra.bill import Amount, Bill, Delta, GroupBill, JobBill, SweepBill
from infra.review.chips import chip_tables, titled
from infra.review.review import JobReview, Review
from infra.review.table import UNKNOWN, State, Table

_QUEUE_STATES: Mapping[Outcome, State] = {
    "admitted": "good",
    "preempts": "notable",
    "waits": "notable",
    "never": "bad",
    "paused": "notable",
}
_NO_JOBS = Table(
    title="Queue",
    verdict="the stack has no jobs; others submit theirs to its queues",
    state="good",
    columns=(),
    rows=(),
    notes=(),
)


def tables(review: Review) -> list[Table]:
    """What stands in the preview, in this order."""
    of_jobs = (table for job in review.jobs for table in (_queue(review, job), *chip_tables(review, job)))
    return [*_ready(review), _price(review), *(of_jobs if review.jobs else [_NO_JOBS])]


def _ready(review: Review) -> Iterable[Table]:
    """What `up` refuses, and what a person has to look at; nothing where there is neither."""
    notes = [f"- {line}" for line in (*review.refused, *review.doubts)]
    if review.refused:
        yield Table("Ready", "NO: `up` refuses this stack", "bad", (), (), notes)
    elif review.doubts:
        yield Table("Ready", "perhaps: look at what cannot be known from here", "notable", (), (), notes)


def _price(review: Review) -> Table:
    bill = review.bill
    return Table(
        title="Price",
        verdict=spent(bill),
        state="notable" if bill.at_most.unknown else "good",
        columns=("group", "slices", "shape", "chips", "capacity", "$/chip h", "$/h", "$/month"),
        rows=[*map(_group, bill.groups), *_sums(bill)],
        notes=[
            *_sources(bill),
            *(line for job in bill.jobs for line in _most(job)),
            *(_all_runs(sweep) for sweep in bill.sweeps),
            *(_difference(bill.delta) if bill.delta else ()),
            f"Not in it: {_listed(bill)}.",
        ],
    )


def spent(bill: Bill) -> str:
    """What a stack costs per hour, in a few words."""
    at_once = f"{_per_hour(bill.at_once)} as soon as it is up"
    return at_once if bill.at_most == bill.at_once else f"{at_once}, at most {_per_hour(bill.at_most)}"


def _per_hour(amount: Amount) -> str:
    known = f"{_usd(amount.usd_per_hour)} an hour"
    if not amount.unknown:
        return known
    unknown = f"an unknown price for {', '.join(amount.unknown)}"
    return f"{known} and {unknown}" if amount.usd_per_hour else unknown


def _group(group: GroupBill) -> tuple[str, ...]:
    return (
        group.name,
        str(group.slices),
        f"{group.generation} {group.topology}",
        str(group.chips),
        group.capacity,
        _amount(group.rate.usd_per_chip_hour, 4),
        _amount(group.usd_per_hour, 2),
        _amount(group.usd_per_month, 0),
    )


def _sums(bill: Bill) -> Iterable[tuple[str, ...]]:
    if len(bill.by_capacity) > 1:
        yield from (_sum(f"all {kind}", amount) for kind, amount in bill.by_capacity.items())
    if len(bill.groups) > 1 or bill.at_most != bill.at_once:
        yield _sum("at once", bill.at_once)
        yield _sum("at most", bill.at_most)


def _sum(name: str, amount: Amount) -> tuple[str, ...]:
    cells = (_known(amount, amount.usd_per_hour, 2), _known(amount, amount.usd_per_month, 0))
    return (name, "", "", "", "", "", *cells)


def _known(amount: Amount, usd: float, decimals: int) -> str:
    """A sum, marked where there is more that nobody knows."""
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
            most = _usd(group.usd_at_most)
            yield f"{job.name} is stopped after {job.max_hours:g} hours: at most {most} on {group.group}."


def _all_runs(sweep: SweepBill) -> str:
    """What a sweep costs, and that its runs do not come at once."""
    amounts = (
        (sweep.usd, "{} for all steps by the estimates"),
        (sweep.usd_at_most, "at most {}, when each is stopped by its max_hours"),
    )
    told = [text.format(_usd(usd)) for usd, text in amounts if usd is not None]
    cost = "; ".join(told) or "nobody knows what they cost, for they have neither estimates nor max_hours"
    return f"{sweep.name}: {sweep.runs} runs, one behind the other in the queue of {sweep.team}; together {cost}."


def _difference(delta: Delta) -> Iterable[str]:
    if not delta.groups:
        yield "The same as what is deployed."
        return
    changes = (
        f"{change.name} {change.chips_before} to {change.chips} chips"
        f" ({UNKNOWN if change.usd_per_hour is None else _signed(change.usd_per_hour)} an hour)"
        for change in delta.groups
    )
    yield (
        f"Against what is deployed: {_more(delta.at_once)} an hour at once,"
        f" {_more(delta.at_most)} at most; {', '.join(changes)}."
    )


def _more(amount: Amount) -> str:
    """A sum of differences, marked where there is more that nobody knows."""
    if not amount.unknown:
        return _signed(amount.usd_per_hour)
    return f"{_signed(amount.usd_per_hour)} + ?" if amount.usd_per_hour else UNKNOWN


def _listed(bill: Bill) -> str:
    return "; ".join(bill.not_included)


def _queue(review: Review, job: JobReview) -> Table:
    verdict = job.admission
    told, *details = verdict.lines
    return Table(
        title=titled("Queue", review, job),
        verdict=told,
        state=_QUEUE_STATES[verdict.outcome],
        columns=(),
        rows=(),
        notes=[f"- {line}" for line in details],
    )


def _amount(amount: float | None, decimals: int) -> str:
    return UNKNOWN if amount is None else f"{amount:,.{decimals}f}"


def _usd(amount: float) -> str:
    return f"${amount:,.2f}"


def _signed(amount: float) -> str:
    return f"{'-' if amount < 0 else '+'}{_usd(abs(amount))}"
