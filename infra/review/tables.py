"""A review as tables: obstacles, price, queue and chips. Everything that was not measured is called an estimate."""

from collections.abc import Iterable, Mapping, Sequence

from infra.admission.rehearsal import Outcome
from infra.cost import Amount, Bill, Delta, GroupBill, JobBill, JobGroupBill, SweepBill
from infra.money import HOURS_PER_DAY, dollars, per_hour, signed_per_hour
from infra.review.review import JobPlan, JobReview, Pace, Padding, Review
from infra.review.table import UNKNOWN, State, Table
from workloads.preflight_result import QUOTED_EFFICIENCY, PreflightResult

_QUEUE_STATES: Mapping[Outcome, State] = {
    "admitted": "good",
    "preempts": "notable",
    "waits": "notable",
    "never": "bad",
    "paused": "notable",
}
_NO_JOBS = Table(
    title="Queue",
    verdict="the stack has no jobs; its queues accept jobs of other stacks",
    state="good",
)


def tables(review: Review) -> list[Table]:
    """Return the tables of a review, in order."""
    of_jobs = (table for job in review.jobs for table in (_queue(review, job), *chip_tables(review, job)))
    return [*_ready(review), *_existing(review), _price(review), *(of_jobs if review.jobs else [_NO_JOBS])]


def submission_tables(review: Review) -> list[Table]:
    """Return the tables about jobs that a member submits to a stack, in order."""
    of_jobs = (table for job in review.jobs for table in (_queue(review, job), *_compiled(review, job)))
    return [*_ready(review), _job_price(review.bill), *of_jobs]


def _compiled(review: Review, job: JobReview) -> list[Table]:
    return chip_tables(review, job) if job.preflight else []


def _job_price(bill: Bill) -> Table:
    """Return the price of jobs while they hold their chips."""
    first = [job.groups[0].usd_per_hour for job in bill.jobs]
    known = [usd for usd in first if usd is not None]
    amount = f"{per_hour(sum(known))} while it runs"
    unknown = len(known) < len(first)
    return Table(
        title="Price",
        verdict=f"{amount}, and an unknown price" if known and unknown else "unknown" if unknown else amount,
        state="notable" if unknown else "good",
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
            f"Not in it: {'; '.join(bill.not_included)}.",
        ],
    )


def spent(bill: Bill) -> str:
    """Return the cost of a stack per hour and per day, as text."""
    at_once = f"{_per_hour(bill.at_once)} as soon as it is up"
    return at_once if bill.at_most == bill.at_once else f"{at_once}, at most {_per_hour(bill.at_most)}"


def _per_hour(amount: Amount) -> str:
    known = per_hour(amount.usd_per_hour)
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
        f"Compared with the deployed stack: {_more(delta.at_once)} at once,"
        f" {_more(delta.at_most)} at most; {'; '.join(changes)}."
    )


def _more(amount: Amount) -> str:
    """Return a sum of differences, marked if unknown amounts have to be added."""
    if not amount.unknown:
        return signed_per_hour(amount.usd_per_hour)
    return f"{signed_per_hour(amount.usd_per_hour)} + ?" if amount.usd_per_hour else UNKNOWN


def _queue(review: Review, job: JobReview) -> Table:
    verdict = job.admission
    headline, *details = verdict.lines
    return Table(
        title=job_title("Queue", review, job),
        verdict=headline,
        state=_QUEUE_STATES[verdict.outcome],
        notes=[f"- {line}" for line in details],
    )


def _amount(amount: float | None, decimals: int) -> str:
    return UNKNOWN if amount is None else f"{amount:,.{decimals}f}"


_RESUMED = {
    True: "may continue with it",
    False: "cannot continue, unless allow_changes names it",
    None: "cannot continue",
}
_SHOWN_ARRAYS = 3
"""Number of the largest arrays in a review. The preflight shows all arrays."""


def chip_tables(review: Review, job: JobReview) -> list[Table]:
    """Return the tables on whether a training job fits, and on how long it would take."""
    if job.plan.training is None:
        return []
    return [_memory(review, job, _SHOWN_ARRAYS), *_remedies(review, job), *_pace(review, job)]


def preflight_tables(review: Review) -> list[Table]:
    """Return the same tables for all jobs, with the basis of the estimates."""
    jobs = [job for job in review.jobs if job.plan.training]
    found = [table for job in jobs for table in _preflight(review, job)]
    estimated = any(job.preflight and job.preflight.fits for job in jobs)
    return [*found, *([_calibration(review)] if estimated else ())]


def job_title(title: str, review: Review, job: JobReview) -> str:
    """Return the title of a table about one job, with the job's name if there are several jobs."""
    return title if len(review.jobs) == 1 else f"{title} of {job.plan.name}"


def _preflight(review: Review, job: JobReview) -> Iterable[Table]:
    yield from (_memory(review, job, None), *_remedies(review, job), *_pace(review, job))
    if job.preflight and job.preflight.fits:
        yield _traffic(review, job, job.preflight)


def _memory(review: Review, job: JobReview, shown: int | None) -> Table:
    """Return the table on whether the job fits, with the `shown` largest arrays, or all of them."""
    found = job.preflight
    arrays = found.biggest_arrays[:shown] if found else ()
    return Table(
        title=job_title("Chips", review, job),
        verdict=_fit(found) if found else f"not compiled yet: run multislice preflight -s {review.stack}",
        state="good" if found and found.fits else "bad" if found and found.fits is False else "notable",
        columns=("largest arrays of a device", "shape", "GiB"),
        rows=[(array.what, array.shape, f"{array.gib:.2f}") for array in arrays],
        notes=[*_step(review, job.plan), *(_compilation(found) if found and not found.unsupported else ())],
    )


def _step(review: Review, plan: JobPlan) -> Iterable[str]:
    if plan.training:
        yield (
            f"{plan.training.preset} on {plan.slices} x {_shape(review, plan)}, mesh {plan.training.mesh},"
            f" {plan.training.sequences_per_step} x {plan.training.tokens_per_sequence} tokens a step."
        )
        if plan.training.padding:
            yield _padding(plan.slices, plan.training.padding)
        for chosen in plan.training.optimizer:
            yield (
                f"{chosen.setting} {_value(chosen.value)}, {_value(chosen.preset)} in the preset: a run trained with"
                f" another value {_RESUMED[chosen.resumes]}."
            )


def _value(value: float | str | None) -> str:
    if value is None:
        return "unset"
    return value if isinstance(value, str) else f"{value:g}"


def _padding(slices: int, found: Sequence[Padding]) -> str:
    """Return the two largest numbers of slices that need padding, and the number that needs the most."""
    near = ", ".join(f"{one.share:.1%} on {one.slices} of {slices} slices" for one in reversed(found[-2:]))
    worst = max(found, key=lambda one: one.share)
    return f"Rows that are padding: {near}; at most {worst.share:.1%}, on {worst.slices}."


def _shape(review: Review, plan: JobPlan) -> str:
    (group,) = (group for group in review.bill.groups if group.name == plan.groups[0])
    return f"{group.generation} {group.topology}"


def _fit(found: PreflightResult) -> str:
    if found.unsupported:
        return f"NO ANSWER: {found.unsupported}"
    answer = "fits: " if found.fits else "DOES NOT FIT: needs "
    return f"{answer}{_number(found.needed_gib)} of {_number(found.usable_gib)} GiB on each device"


def _compilation(found: PreflightResult) -> Iterable[str]:
    packages = ", ".join(f"{package} {version}" for package, version in found.versions.items())
    seconds = f"{_number(found.compile_wall_seconds, 0)} s ({_number(found.compile_cpu_seconds, 0)} s of CPU time)"
    yield f"Compiled in {seconds} by {packages}; nothing ran on a TPU."
    if other := found.alternative:
        step = f"ESTIMATED step {_number(other.seconds, 3)} s" if other.fits else "the step does not fit"
        own = f" instead of {_number(found.estimate.seconds, 3)} s" if other.fits and found.estimate else ""
        yield (
            f"With compile: {other.compile}, {_number(other.compile_cpu_seconds, 0)} s of CPU time instead of"
            f" {_number(found.compile_cpu_seconds, 0)} s; {step}{own}."
        )
    if found.attention:
        yield f"{found.attention}."
    yield from found.warnings


def _remedies(review: Review, job: JobReview) -> Iterable[Table]:
    found = job.preflight
    if found is None or found.fits is not False:
        return
    helps = any(remedy.fits for remedy in found.remedies)
    yield Table(
        title=job_title("Instead", review, job),
        verdict="these would fit" if helps else "nothing that was tried fits: use larger slices",
        state="notable" if helps else "bad",
        columns=("tried, each compiled", "fits", "GiB", "ESTIMATED step s"),
        rows=[
            (remedy.change, "yes" if remedy.fits else "no", _number(remedy.peak_gib), _number(remedy.seconds, 3))
            for remedy in found.remedies
        ],
    )


def _pace(review: Review, job: JobReview) -> Iterable[Table]:
    plan = job.plan.training
    if plan is None or not job.paces:
        return
    quoted = next(pace for pace in job.paces if pace.kernel_efficiency == QUOTED_EFFICIENCY)
    cost = "at an unknown price" if quoted.usd is None else f"for ${quoted.usd:,.0f} on {job.plan.groups[0]}"
    (costs,) = (costs for costs in review.bill.jobs if costs.name == job.plan.name)
    yield Table(
        title=job_title("Pace", review, job),
        verdict=f"ESTIMATE: {plan.steps:,} steps, {plan.tokens:.3g} tokens in {quoted.days:,.1f} days {cost}",
        state="good",
        columns=("attention kernels at", "step s", "MFU", "tokens/s/chip", "tokens a day", "days", "$"),
        rows=[_at(pace) for pace in job.paces],
        notes=[_describe_calibration(review), f"Not in it: {'; '.join(costs.not_included)}."],
    )


def _at(pace: Pace) -> tuple[str, ...]:
    return (
        f"{pace.kernel_efficiency:.0%}{' (quoted)' if pace.kernel_efficiency == QUOTED_EFFICIENCY else ''}",
        f"{pace.step_seconds:.3f}",
        f"{pace.mfu:.1%}",
        f"{pace.tokens_per_second_per_chip:,.0f}",
        f"{pace.tokens_per_day:.3g}",
        f"{pace.days:,.2f}",
        UNKNOWN if pace.usd is None else f"{pace.usd:,.0f}",
    )


def _describe_calibration(review: Review) -> str:
    calibration = review.calibration
    ratios = [recipe.ratio for recipe in calibration.recipes if recipe.ratio is not None]
    return (
        f"CALIBRATION: such an estimate of {calibration.program} was {min(ratios):.2f} to {max(ratios):.2f} of the"
        f" published seconds, on {len(ratios)} shapes of {calibration.model}."
    )


def _traffic(review: Review, job: JobReview, found: PreflightResult) -> Table:
    networks = (("within the slice (ICI)", found.ici_sent_bytes), ("to other slices (DCN)", found.dcn_sent_bytes))
    exposed = found.dcn_exposed_seconds
    waited = "" if exposed is None else f", {exposed * 1e3:.1f} ms of DCN not hidden and not in the estimate"
    return Table(
        title=job_title("Traffic", review, job),
        verdict=f"of a device in a step{waited}",
        state="good",
        columns=("sent", "by", "MB"),
        rows=[
            (network, kind.lower().replace("_", "-"), f"{sent / 1e6:,.1f}")
            for network, totals in networks
            for kind, sent in totals.items()
        ],
    )


def _calibration(review: Review) -> Table:
    calibration = review.calibration
    return Table(
        title="Calibration",
        verdict=f"{calibration.program}, {calibration.model}: published and estimated",
        state="good",
        columns=("one slice", "tokens a chip", "published s", "ESTIMATED s", "ratio"),
        rows=[
            (
                f"{recipe.generation} {recipe.topology}",
                f"{recipe.sequences_per_chip} x {calibration.sequence_length}",
                f"{recipe.published_seconds:.3f}",
                _number(recipe.estimated_seconds, 3),
                _number(recipe.ratio),
            )
            for recipe in calibration.recipes
        ],
        notes=[f"Published: {calibration.source}"],
    )


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
