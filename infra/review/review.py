"""Everything that a preview tells of a stack, as one object.

Owns what is in it; how it reads is the business of `infra.review.tables`. Pure: the cluster, the clock and the
preflight's cache are the caller's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from infra.admission.stack import rehearse_stack
from infra.admission.verdict import Verdict
from infra.bill import Bill, bill
from infra.job_spec import job_spec
from infra.stack_file import Settings
from workloads.calibration import Calibration, load_calibration
from workloads.preflight_result import PreflightResult, tokens, tokens_per_day
from workloads.spec import JobSpec, Spec


class JobPlan(Spec):
    """The training job."""

    name: str
    team: str
    preset: str
    groups: tuple[str, ...]
    """Slice groups that it may run on, the best first."""
    slices: int
    chips: int
    mesh: str
    sequences_per_step: int
    tokens_per_sequence: int
    steps: int
    tokens: int


class Pace(Spec):
    """The job's steps at one estimate; starts, saves and waits come on top."""

    kernel_efficiency: float
    """What the estimate assumes of attention kernels, as a share of the chip's peak."""
    step_seconds: float
    mfu: float
    tokens_per_second_per_chip: float
    tokens_per_day: float
    days: float
    """To the last step."""
    usd: float | None
    """To the last step, on the best group; None: its price is not known."""


class Review(Spec):
    """A stack before it is brought up."""

    stack: str
    made_on: date
    job: JobPlan
    bill: Bill
    admission: Verdict
    preflight: PreflightResult | None
    """None: the job's step has not been compiled yet."""
    paces: tuple[Pace, ...]
    """ESTIMATES, by the share of the peak that attention kernels reach."""
    calibration: Calibration
    """What such estimates said of steps that others have measured."""

    @property
    def goes(self) -> bool:
        """Whether nothing is known that keeps the job from running."""
        return self.admission.outcome != "never" and not (self.preflight and self.preflight.fits is False)


@dataclass(frozen=True)
class Known:
    """What is known beside the settings."""

    today: date
    preflight: PreflightResult | None
    """Of the stack's job."""
    deployed: Bill | None
    """Of the stack that stands; None: nobody asked, or there is none."""
    workloads: Sequence[Mapping[str, Any]] | None
    """Kueue's objects in the cluster; None: nobody asked, or there is none."""


def review(stack: str, settings: Settings, known: Known) -> Review:
    """The review of the stack of that name."""
    spec, preflight = job_spec(settings), known.preflight
    estimate = preflight.estimate if preflight else None
    costs = bill(settings, estimate.seconds if estimate else None, known.deployed)
    return Review(
        stack=stack,
        made_on=known.today,
        job=_job(settings, spec),
        bill=costs,
        admission=rehearse_stack(settings, known.workloads),
        preflight=preflight,
        paces=_paces(spec, preflight, costs.job.groups[0].usd_per_hour) if preflight else (),
        calibration=load_calibration(),
    )


def _job(settings: Settings, spec: JobSpec) -> JobPlan:
    job = settings.job
    return JobPlan(
        name=job.name,
        team=job.team,
        preset=job.preset,
        groups=job.slices.groups,
        slices=spec.slices.count,
        chips=spec.slices.chips,
        mesh=str(spec.mesh),
        sequences_per_step=spec.training.global_batch,
        tokens_per_sequence=spec.training.sequence_length,
        steps=spec.training.steps,
        tokens=tokens(spec),
    )


def _paces(spec: JobSpec, preflight: PreflightResult, usd_per_hour: float | None) -> tuple[Pace, ...]:
    paces: list[Pace] = []
    for step in preflight.steps:
        per_day = tokens_per_day(preflight, step)
        days = tokens(spec) / per_day
        paces.append(
            Pace(
                kernel_efficiency=step.kernel_efficiency,
                step_seconds=step.seconds,
                mfu=step.mfu,
                tokens_per_second_per_chip=step.tokens_per_second_per_chip,
                tokens_per_day=per_day,
                days=days,
                usd=None if usd_per_hour is None else usd_per_hour * 24 * days,
            )
        )
    return tuple(paces)
