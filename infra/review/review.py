"""Contents of a review and a preview of a stack, as objects. The caller supplies cluster data, time and preflights."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal

from infra.review.admission.rehearsal import Verdict, rehearse_stack
from infra.review.obstacles import doubts, expiry_errors, placeholders
from infra.stack.cost import Bill, bill
from infra.stack.names import HOURS_PER_DAY
from infra.stack.settings.jobs import AnyJob, TrainingJob
from infra.stack.settings.stack import Settings
from infra.stack.submission import job_specs
from workloads.preflight_result import Calibration, PreflightResult, load_calibration, tokens, tokens_per_day
from workloads.spec import CHANGEABLE, JobSpec, Spec, load_preset


class OptimizerValue(Spec):
    """A setting of the optimizer that the stack file changes."""

    setting: str
    value: float | str | None
    preset: float | str | None
    resumes: bool | None
    """Whether a run with another value may continue with this value. `None` if no job can allow that."""


class Padding(Spec):
    """Padding on a number of slices over which rows do not divide evenly."""

    slices: int
    share: float
    """Share of a step's rows that only pad the batch."""


class TrainingPlan(Spec):
    """Work of a training job."""

    preset: str
    mesh: str
    sequences_per_step: int
    tokens_per_sequence: int
    steps: int
    tokens: int
    padding: tuple[Padding, ...]
    """Padding for each number of slices that needs it, in ascending order."""
    optimizer: tuple[OptimizerValue, ...]


class JobPlan(Spec):
    """A job."""

    name: str
    kind: Literal["training", "container"]
    team: str
    groups: tuple[str, ...]
    """Slice groups that it may run on, the preferred group first."""
    slices: int
    chips: int
    training: TrainingPlan | None
    """Training plan. `None` if the job does not run the trainer."""


class Pace(Spec):
    """Speed of the job's steps at one estimate, without starts, saves and waits."""

    kernel_efficiency: float
    """Share of the chip's peak that attention kernels are assumed to reach."""
    step_seconds: float
    mfu: float
    tokens_per_second_per_chip: float
    tokens_per_day: float
    days: float
    usd: float | None
    """US dollars to the last step on the preferred group. `None` if its price is unknown."""


class JobReview(Spec):
    """Review of one of a stack's jobs."""

    plan: JobPlan
    admission: Verdict
    preflight: PreflightResult | None
    """Preflight result. `None` if the job has no step to compile, or the step is not compiled yet."""
    paces: tuple[Pace, ...]
    """Estimates by the share of the peak that attention kernels reach."""

    @property
    def can_run(self) -> bool:
        """Return whether nothing is known that prevents the job from running."""
        return self.admission.outcome != "never" and not (self.preflight and self.preflight.fits is False)


class Review(Spec):
    """Review of a stack before it is brought up."""

    stack: str
    made_on: date
    refused: tuple[str, ...] = ()
    """Why `up` refuses the stack although its settings are valid: its time is over, or example values are left."""
    doubts: tuple[str, ...] = ()
    """Values that are probably wrong and that a person should check."""
    existing: tuple[str, ...] = ()
    """What exists already and the stack leaves alone, as sentences."""
    unchecked: str | None = None
    """Section of the stack file that only Google Cloud can check, which was not asked. Default: none."""
    bill: Bill
    jobs: tuple[JobReview, ...]
    calibration: Calibration
    """Comparison of such estimates with published measurements."""

    @property
    def can_run(self) -> bool:
        """Return whether nothing is known that prevents a job from running."""
        return all(job.can_run for job in self.jobs)


@dataclass(frozen=True)
class Known:
    """Knowledge in addition to the settings."""

    at: datetime
    preflights: Mapping[str, PreflightResult]
    """Preflight results by job, for training jobs whose steps were compiled."""
    deployed: Bill | None
    """Bill of the deployed stack. `None` if nothing is deployed, or the bill was not requested."""
    workloads: Sequence[Mapping[str, Any]] | None
    """Kueue's Workloads in the cluster, without those of jobs that the plan deletes. `None` if there is no cluster, or
    it was not asked."""
    kept: frozenset[str] = frozenset()
    """Names of the jobs whose JobSets exist and are not replaced. Default: all jobs are submitted."""
    unchecked: str | None = None
    """Section of the stack file that only Google Cloud can check, which was not asked. Default: none."""


def review(stack: str, settings: Settings, known: Known) -> Review:
    """Return the review of the stack of that name."""
    estimates = {name: found.estimate for name, found in known.preflights.items() if found.estimate}
    costs = bill(settings, {name: estimate.seconds for name, estimate in estimates.items()}, known.deployed)
    verdicts, specs = rehearse_stack(settings, known.workloads, known.kept), job_specs(settings)
    return Review(
        stack=stack,
        made_on=known.at.date(),
        refused=tuple(map(str, (*expiry_errors(settings.budget, known.at, stack), *placeholders(settings)))),
        doubts=tuple(map(str, doubts(settings))),
        existing=tuple(_existing(settings)),
        unchecked=known.unchecked,
        bill=costs,
        jobs=tuple(
            JobReview(
                plan=_plan(settings, settings.jobs[cost.name], specs.get(cost.name)),
                admission=verdicts[cost.name],
                **_chips(specs.get(cost.name), known.preflights.get(cost.name), cost.groups[0].usd_per_hour),
            )
            for cost in costs.jobs
        ),
        calibration=load_calibration(),
    )


def _chips(spec: JobSpec | None, preflight: PreflightResult | None, usd_per_hour: float | None) -> dict[str, Any]:
    """Return the fields of a `JobReview` about the job's steps. `spec` is `None` for a job without the trainer."""
    if spec is None:
        return {"preflight": None, "paces": ()}
    return {"preflight": preflight, "paces": _paces(spec, preflight, usd_per_hour) if preflight else ()}


def _existing(settings: Settings) -> Iterator[str]:
    network, cluster = settings.network.existing, settings.cluster.existing
    if network is not None:
        project = network.project or settings.cloud.project
        yield f"network {network.network} of {project}, with its subnet {network.subnet}"
    if cluster is not None:
        found = [name for name, how in (("JobSet", cluster.jobset), ("Kueue", cluster.kueue)) if how == "found"]
        with_these = f", with its {' and '.join(found)}" if found else ""
        yield f"cluster {cluster.name} in {cluster.location}{with_these}"
    for name, group in settings.slices.items():
        if group.existing:
            yield f"the {group.count} node pools of {name}"


def _plan(settings: Settings, job: AnyJob, spec: JobSpec | None) -> JobPlan:
    return JobPlan(
        name=job.name,
        kind=job.kind,
        team=job.team,
        groups=job.slices.groups,
        slices=job.slices.count,
        chips=job.slices.count * settings.group_of(job).shape.chips,
        training=_training(settings.training_jobs[job.name], spec) if spec else None,
    )


def _training(job: TrainingJob, spec: JobSpec) -> TrainingPlan:
    preset = load_preset(job.preset).optimizer
    return TrainingPlan(
        preset=" with ".join([spec.preset, *([", ".join(f"model.{name}" for name in job.model)] if job.model else [])]),
        mesh=str(spec.mesh),
        sequences_per_step=spec.training.global_batch,
        tokens_per_sequence=spec.training.sequence_length,
        steps=spec.training.steps,
        tokens=tokens(spec),
        padding=tuple(
            Padding(slices=count, share=share)
            for count in spec.start_counts
            if (share := spec.on_slices(count).padding)
        ),
        optimizer=tuple(
            OptimizerValue(
                setting=f"optimizer.{name}",
                value=getattr(spec.optimizer, name),
                preset=getattr(preset, name),
                resumes=f"optimizer.{name}" in job.allow_changes if f"optimizer.{name}" in CHANGEABLE else None,
            )
            for name in job.optimizer
        ),
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
                usd=None if usd_per_hour is None else usd_per_hour * HOURS_PER_DAY * days,
            )
        )
    return tuple(paces)


class Change(Spec):
    """What the engine would do with one resource."""

    operation: str
    """Pulumi's name of the operation, such as `create`, `update`, `replace` or `delete`."""
    type: str
    name: str
    properties: tuple[str, ...]
    """Paths of the inputs that differ."""


class Finding(Spec):
    """A policy rule that the plan violates."""

    rule: str
    level: Literal["advisory", "mandatory"]
    severity: str
    resource: str | None
    """Name within the program. `None` for the whole stack."""
    message: str


class Previewed(Spec):
    """The result of a preview of a stack."""

    stack: str
    review: Review | None
    """The review. `None` if the program ended before creating it; then `errors` contains the reason."""
    changes: tuple[Change, ...]
    unchanged: int
    findings: tuple[Finding, ...]
    errors: tuple[str, ...]
    """Why the engine refuses the plan, apart from the findings."""
    seconds: float
    """Duration of the preview in seconds."""

    @property
    def passes(self) -> bool:
        """Return whether the plan may be executed and nothing is known that prevents a job from running."""
        refused = self.errors or any(finding.level == "mandatory" for finding in self.findings)
        return not refused and self.review is not None and self.review.can_run


REVIEW_FILE = "TPU_MULTISLICE_REVIEW_FILE"
"""Environment variable with the path of the file to which the review is written as JSON."""
