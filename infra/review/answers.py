"""A review in five lines: price, memory, pace, queue and verdict. The tables have the rest."""

from collections.abc import Iterable, Iterator, Sequence

from infra.review.admission.rehearsal import Outcome
from infra.review.chip_tables import fit_answer, pace_answer
from infra.review.review import JobReview, Review
from infra.review.table import UNKNOWN, Answer, State
from infra.stack.command_lines import command_line
from infra.stack.cost import Amount, Bill, JobBill, dollars, per_hour, signed_per_hour

QUEUE_STATES: dict[Outcome, State] = {
    "admitted": "good",
    "preempts": "notable",
    "waits": "notable",
    "never": "bad",
    "paused": "notable",
}
_STATES: Sequence[State] = ("good", "notable", "bad")
"""Best state first."""
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
    return [price, *_about_jobs(review, asks_preflight=True), verdict]


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
    limit = [f"stopped after {bill.max_hours:g} hours"] if bill.max_hours else []
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
    """Return the only error, or the settings that have one."""
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
