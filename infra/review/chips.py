"""What the preflight says of a stack's job, as tables: memory, pace, traffic, calibration.

Owns what a person reads of it and in which words. Every figure is of the review; what was not measured is called an
estimate.
"""

from collections.abc import Iterable

from infra.review.review import Pace, Review
from infra.review.table import UNKNOWN, Table
from workloads.preflight_result import QUOTED_EFFICIENCY, PreflightResult

_SHOWN_ARRAYS = 3
"""In a review; the preflight shows all."""


def chip_tables(review: Review) -> list[Table]:
    """Whether the job fits, and how long it would take."""
    return [_memory(review, _SHOWN_ARRAYS), *_remedies(review.preflight), *_pace(review)]


def preflight_tables(review: Review) -> list[Table]:
    """The same with what the estimate rests on."""
    found = review.preflight
    rest = (_traffic(found), _calibration(review)) if found and found.fits else ()
    return [_memory(review, None), *_remedies(found), *_pace(review), *rest]


def _memory(review: Review, shown: int | None) -> Table:
    """With so many of the largest arrays, or all that are known."""
    job, found = review.job, review.preflight
    arrays = found.biggest_arrays[:shown] if found else ()
    return Table(
        title="Chips",
        verdict=_fit(found) if found else f"not compiled yet: run python -m cli.multislice preflight -s {review.stack}",
        state="good" if found and found.fits else "bad" if found and found.fits is False else "notable",
        columns=("largest arrays of a device", "shape", "GiB"),
        rows=[(array.what, array.shape, f"{array.gib:.2f}") for array in arrays],
        notes=[
            f"{job.preset} on {job.slices} x {_shape(review)}, mesh {job.mesh},"
            f" {job.sequences_per_step} x {job.tokens_per_sequence} tokens a step.",
            *(_compilation(found) if found and not found.unsupported else ()),
        ],
    )


def _shape(review: Review) -> str:
    (group,) = (group for group in review.bill.groups if group.name == review.job.groups[0])
    return f"{group.generation} {group.topology}"


def _fit(found: PreflightResult) -> str:
    if found.unsupported:
        return f"NO ANSWER: {found.unsupported}"
    told = "fits: " if found.fits else "DOES NOT FIT: needs "
    return f"{told}{_number(found.needed_gib)} of {_number(found.usable_gib)} GiB on each device"


def _compilation(found: PreflightResult) -> Iterable[str]:
    packages = ", ".join(f"{package} {version}" for package, version in found.versions.items())
    seconds = f"{_number(found.compile_wall_seconds, 0)} s ({_number(found.compile_cpu_seconds, 0)} s of processor)"
    yield f"Compiled in {seconds} by {packages}; nothing ran on a TPU."
    yield from found.warnings


def _remedies(found: PreflightResult | None) -> Iterable[Table]:
    if found is None or found.fits is not False:
        return
    helps = any(remedy.fits for remedy in found.remedies)
    yield Table(
        title="Instead",
        verdict="these would fit" if helps else "nothing that was tried fits: take slices of more chips",
        state="notable" if helps else "bad",
        columns=("tried, each compiled", "fits", "GiB", "ESTIMATED step s"),
        rows=[
            (remedy.change, "yes" if remedy.fits else "no", _number(remedy.peak_gib), _number(remedy.seconds, 3))
            for remedy in found.remedies
        ],
        notes=(),
    )


def _pace(review: Review) -> Iterable[Table]:
    if not review.paces:
        return
    job, quoted = review.job, next(pace for pace in review.paces if pace.kernel_efficiency == QUOTED_EFFICIENCY)
    cost = "at a price that is not known" if quoted.usd is None else f"for ${quoted.usd:,.0f} on {job.groups[0]}"
    yield Table(
        title="Pace",
        verdict=f"ESTIMATE: {job.steps:,} steps, {job.tokens:.3g} tokens in {quoted.days:,.1f} days {cost}",
        state="good",
        columns=("attention kernels at", "step s", "MFU", "tokens/s/chip", "tokens a day", "days", "$"),
        rows=[_at(pace) for pace in review.paces],
        notes=[_calibrated(review), f"Not in it: {'; '.join(review.bill.job.not_included)}."],
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


def _calibrated(review: Review) -> str:
    calibration = review.calibration
    ratios = [recipe.ratio for recipe in calibration.recipes if recipe.ratio is not None]
    return (
        f"CALIBRATION: such an estimate of {calibration.program} was {min(ratios):.2f} to {max(ratios):.2f} of the"
        f" published seconds, on {len(ratios)} shapes of {calibration.model}."
    )


def _traffic(found: PreflightResult) -> Table:
    networks = (("within the slice (ICI)", found.ici_sent_bytes), ("to other slices (DCN)", found.dcn_sent_bytes))
    exposed = found.dcn_exposed_seconds
    waited = "" if exposed is None else f", {exposed * 1e3:.1f} ms of DCN not hidden and not in the estimate"
    return Table(
        title="Traffic",
        verdict=f"of a device in a step{waited}",
        state="good",
        columns=("sent", "by", "MB"),
        rows=[
            (network, kind.lower().replace("_", "-"), f"{sent / 1e6:,.1f}")
            for network, totals in networks
            for kind, sent in totals.items()
        ],
        notes=(),
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
