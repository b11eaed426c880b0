"""Tables about the steps of a training job on its chips: memory, pace and traffic. All times are called estimates."""

from collections.abc import Iterable, Sequence

from infra.review.review import JobPlan, JobReview, Pace, Padding, Review
from infra.review.table import UNKNOWN, State, Table
from infra.stack.command_lines import command_line
from infra.stack.names import HOURS_PER_DAY
from workloads.preflight_result import QUOTED_EFFICIENCY, PreflightResult

_RESUMED = {
    True: "may continue with it",
    False: "cannot continue, unless allow_changes names it",
    None: "cannot continue",
}
_SHOWN_ARRAYS = 3


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
    found = job.preflight
    arrays = found.biggest_arrays[:shown] if found else ()
    unknown: tuple[str, State] = f"unknown until you run `{command_line('preflight', review.stack)}`", "notable"
    verdict, state = fit_answer(found) if found else unknown
    return Table(
        title=job_title("Fits", review, job),
        verdict=verdict,
        state=state,
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
    near = ", ".join(f"{one.share:.1%} on {one.slices} of {slices} slices" for one in reversed(found[-2:]))
    worst = max(found, key=lambda one: one.share)
    return f"Rows that are padding: {near}; at most {worst.share:.1%}, on {worst.slices}."


def _shape(review: Review, plan: JobPlan) -> str:
    (group,) = (group for group in review.bill.groups if group.name == plan.groups[0])
    return f"{group.generation} {group.topology}"


def fit_answer(found: PreflightResult) -> tuple[str, State]:
    """Return whether a step fits in memory."""
    if found.unsupported:
        return f"unknown: {found.unsupported}", "notable"
    answer: tuple[str, State] = ("yes, it needs", "good") if found.fits else ("NO, it needs", "bad")
    return f"{answer[0]} {_number(found.needed_gib)} of {_number(found.usable_gib)} GiB on each device", answer[1]


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
    for kernel in found.kernels:
        yield f"{kernel}."
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


def pace_answer(job: JobReview) -> str:
    """Return the quoted estimate of a job that fits: a step, all steps, and their cost on the preferred group."""
    assert job.plan.training
    quoted = next(pace for pace in job.paces if pace.kernel_efficiency == QUOTED_EFFICIENCY)
    cost = "at an unknown price" if quoted.usd is None else f"and cost ${quoted.usd:,.0f} on {job.plan.groups[0]}"
    steps = f"{job.plan.training.steps:,} steps take {_time(quoted.days)}"
    return f"ESTIMATE: {quoted.step_seconds:.3f} s a step, {steps} {cost}"


def _time(days: float) -> str:
    hours, minutes = divmod(round(days * HOURS_PER_DAY * 60), 60)
    if days >= 2:
        return f"{days:,.1f} days"
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"


def _pace(review: Review, job: JobReview) -> Iterable[Table]:
    plan = job.plan.training
    if plan is None or not job.paces:
        return
    (costs,) = (costs for costs in review.bill.jobs if costs.name == job.plan.name)
    yield Table(
        title=job_title("Pace", review, job),
        verdict=pace_answer(job),
        state="good",
        columns=("attention kernels at", "step s", "MFU", "tokens/s/chip", "tokens a day", "days", "$"),
        rows=[_at(pace) for pace in job.paces],
        notes=[
            f"All steps train on {plan.tokens:.3g} tokens.",
            _describe_calibration(review),
            f"Not included: {'; '.join(costs.not_included)}.",
        ],
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
    waited = "" if exposed is None else f"; it waits {exposed * 1e3:.1f} ms for other slices, as estimated above"
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
