"""A review in five lines: price, memory, pace, queue and verdict; and its tables, which have the rest."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from infra.review.admission.rehearsal import Outcome
from infra.review.chip_tables import chip_tables, fit_answer, pace_answer
from infra.review.review import JobReview, Review
from infra.review.table import UNKNOWN, Answer, State, Table
from infra.stack.command_lines import command_line
from infra.stack.cost import (
    Amount,
    Bill,
    Delta,
    GroupBill,
    JobBill,
    SweepBill,
    dollars,
    hours,
    per_hour,
    signed_per_hour,
)
from infra.stack.names import HOURS_PER_DAY

QUEUE_STATES: dict[Outcome, State] = {
    "runs": "good",
    "admitted": "good",
    "preempts": "notable",
    "waits": "notable",
    "never": "bad",
    "paused": "notable",
}
_STATES: Sequence[State] = ("good", "notable", "bad")
_NAMED = 3
"""Number of jobs with the same answer that are named. The others are counted."""
_OneJob = tuple[str, str, State]
"""Name of a job, the answer about it, and the state of that answer."""


def answers(review: Review) -> list[Answer]:
    """Return the answers about a stack, in order. There is none about memory if no job has a step to compile."""
    price = Answer("Price", spent(review.bill) + _compared(review.bill), _price_state(review.bill.at_most.unknown))
    doubts = _settings(review, review.doubts) if review.doubts else ""
    passes = f"nothing prevents it; `{command_line('preview', review.stack)}` also checks the policy rules"
    verdict = _verdict(find_obstacles(review), doubts, passes)
    return [price, *_about_jobs(review, asks_preflight=True), *_offline(review), verdict]


def _offline(review: Review) -> Iterator[Answer]:
    if review.unchecked:
        asks = command_line("preview", review.stack, "--engine", "pulumi")
        yield Answer("Offline", f"{review.unchecked} is not checked; `{asks}` asks Google Cloud", "notable")


def submission_answers(review: Review) -> list[Answer]:
    """Return the answers about jobs that a member submits, who has no stack file to compile them from."""
    first = [job.groups[0].usd_per_hour for job in review.bill.jobs]
    known = [usd for usd in first if usd is not None]
    amount = f"{per_hour(sum(known))} while it runs"
    unknown = len(known) < len(first)
    price = f"{amount}, and an unknown price" if known and unknown else UNKNOWN if unknown else amount
    verdict = _verdict(submission_obstacles(review), "; ".join(review.doubts), "nothing prevents it")
    return [Answer("Price", price, _price_state(unknown)), *_about_jobs(review, asks_preflight=False), verdict]


def submission_obstacles(review: Review) -> Iterator[str]:
    """Yield what prevents jobs that a member submits from running."""
    yield from review.refused
    yield from _obstacles_of_jobs(review)


def _verdict(obstacles: Iterable[str], doubts: str, otherwise: str) -> Answer:
    if obstacle := "; ".join(obstacles):
        return Answer("Verdict", f"NO: {obstacle}", "bad")
    return Answer("Verdict", f"perhaps: check {doubts}", "notable") if doubts else Answer("Verdict", otherwise, "good")


def find_obstacles(review: Review) -> Iterator[str]:
    """Yield what prevents the stack or one of its jobs from running, in a few words each."""
    if review.refused:
        yield f"`up` refuses this stack: correct {_settings(review, review.refused)}"
    yield from _obstacles_of_jobs(review)


def _obstacles_of_jobs(review: Review) -> Iterator[str]:
    for job in review.jobs:
        if job.preflight and job.preflight.fits is False:
            yield f"{job.plan.name} does not fit"
        if job.admission.outcome == "never":
            yield f"{job.plan.name} is never admitted"


def spent(bill: Bill) -> str:
    """Return the cost of a stack per hour and per day, as text."""
    at_once = f"{_per_hour(bill.at_once)} while deployed"
    return at_once if bill.at_most == bill.at_once else f"{at_once}, at most {_per_hour(bill.at_most)}"


def queue_answer(review: Review) -> Answer:
    """Return what the queue does with the jobs, and what the simulation of it assumes."""
    if not review.jobs:
        return Answer("Queue", "the stack has no jobs; its queues accept jobs of other stacks", "good")
    found: list[_OneJob] = [
        (job.plan.name, job.admission.answer, QUEUE_STATES[job.admission.outcome]) for job in review.jobs
    ]
    assumed = dict.fromkeys(job.admission.assumed for job in review.jobs if job.admission.assumed)
    (answer,) = _together("Queue", review, found)
    return Answer(answer.title, f"{answer.verdict}{''.join(f' ({each})' for each in assumed)}", answer.state)


def _about_jobs(review: Review, *, asks_preflight: bool) -> Iterator[Answer]:
    yield from _together("Fits", review, [each for job in review.jobs for each in _fit(review, job, asks_preflight)])
    bills = {job.name: job for job in review.bill.jobs}
    paces = [each for job in review.jobs for each in _pace(job, bills[job.plan.name], asks_preflight)]
    yield from _together("Pace", review, paces)
    yield queue_answer(review)


def _fit(review: Review, job: JobReview, asks_preflight: bool) -> Iterator[_OneJob]:
    if found := job.preflight:
        answer, state = fit_answer(found)
        yield job.plan.name, answer, state
    elif job.plan.training and asks_preflight:
        yield job.plan.name, f"unknown until you run `{command_line('preflight', review.stack)}`", "notable"


def _pace(job: JobReview, bill: JobBill, asks_preflight: bool) -> Iterator[_OneJob]:
    limit = [f"stopped after {hours(bill.max_hours)}"] if bill.max_hours else []
    if bill.max_hours and bill.groups[0].usd_at_most is not None:
        limit.append(f"at most {dollars(bill.groups[0].usd_at_most)}")
    if job.paces:
        yield job.plan.name, ", ".join([pace_answer(job), *limit]), "good"
    elif job.plan.training and job.preflight is None and asks_preflight:
        yield job.plan.name, ", ".join(["unknown until then", *limit]), "notable"
    elif limit:
        yield job.plan.name, ", ".join(limit), "good"


def _together(title: str, review: Review, found: Sequence[_OneJob]) -> Iterator[Answer]:
    """Yield one answer about several jobs, in which the jobs with the same answer are together."""
    if not found:
        return
    names: dict[str, list[str]] = {}
    for name, answer, _ in found:
        names.setdefault(answer, []).append(name)
    lines = [f"{join_names(each)}: {answer}" for answer, each in names.items()]
    state = _STATES[max(_STATES.index(state) for _, _, state in found)]
    yield Answer(title, found[0][1] if len(review.jobs) == 1 else "; ".join(lines), state)


def join_names(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _settings(review: Review, errors: Sequence[str]) -> str:
    if len(errors) == 1:
        return errors[0]
    names = ", ".join(error.partition(":")[0] for error in errors)
    return f"{names} (see `{command_line('review', review.stack, '--verbose')}`)"


def _price_state(unknown: object) -> State:
    return "notable" if unknown else "good"


def _compared(bill: Bill) -> str:
    if bill.delta is None:
        return ""
    if not bill.delta.groups:
        return ", unchanged"
    return f", {more(bill.delta.at_once)} compared with what is deployed"


def more(amount: Amount) -> str:
    """Return a sum of differences, marked if unknown amounts have to be added."""
    if not amount.unknown:
        return signed_per_hour(amount.usd_per_hour)
    return f"{signed_per_hour(amount.usd_per_hour)} + ?" if amount.usd_per_hour else UNKNOWN


def _per_hour(amount: Amount) -> str:
    known = per_hour(amount.usd_per_hour)
    if not amount.unknown:
        return known
    unknown = f"an unknown price for {', '.join(amount.unknown)}"
    return f"{known} and {unknown}" if amount.usd_per_hour else unknown


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
    (price, *_), bill = submission_answers(review), review.bill
    return Table(
        title=price.title,
        verdict=price.verdict,
        state=price.state,
        columns=("job", "chips", "group", "capacity", "$/h", "$/day"),
        rows=[
            (
                job.name,
                str(job.chips),
                each.group,
                each.capacity,
                _amount(each.usd_per_hour, 2),
                _amount(None if each.usd_per_hour is None else HOURS_PER_DAY * each.usd_per_hour, 2),
            )
            for job in bill.jobs
            for each in job.groups
        ],
        notes=[line for job in bill.jobs for line in _most(job)],
    )


def _ready(review: Review) -> Iterable[Table]:
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
        if job.max_hours and group.usd_at_most is not None:
            most = dollars(group.usd_at_most)
            yield f"{job.name} is stopped after {hours(job.max_hours)}: at most {most} on {group.group}."


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
