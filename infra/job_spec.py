"""Settings to JobSpec: what the trainer is told.

Owns the derivation of a job's numbers from preset, stack file and accelerator table. How the
JobSpec reaches the pod is the business of `infra.pods`.
"""

from infra.accelerators import SliceShape
from infra.settings.jobs import Job, TrainingJob
from infra.settings.stack import Settings
from workloads.spec import (
    CompilerSpec,
    JobSpec,
    MeshSpec,
    OptimizerSpec,
    Preset,
    SliceSpec,
    StorageSpec,
    TrainingSpec,
    load_preset,
)


def job_specs(settings: Settings) -> dict[str, JobSpec]:
    """The specifications of the stack's training jobs, by name."""
    return {name: job_spec(settings, job) for name, job in settings.training_jobs.items()}


def job_spec(settings: Settings, job: TrainingJob) -> JobSpec:
    """The specification of one of the stack's jobs."""
    shape = settings.group_of(job).shape
    return assemble(job, shape, load_preset(job.preset), f"gs://{settings.checkpoint_bucket}")


def training_spec(job: TrainingJob, preset: Preset) -> TrainingSpec:
    """The preset's training section with the stack file's values over it."""
    return TrainingSpec.model_validate(preset.training.model_dump() | dict(job.training))


def optimizer_spec(job: TrainingJob, preset: Preset) -> OptimizerSpec:
    """The preset's optimizer section with the stack file's values over it."""
    return OptimizerSpec.model_validate(preset.optimizer.model_dump() | dict(job.optimizer))


def assemble(job: TrainingJob, shape: SliceShape, preset: Preset, storage_root: str) -> JobSpec:
    """The specification of `job` on slices of `shape`, with its files below `storage_root`.

    Raises:
        pydantic.ValidationError: the job's sizes do not fit its slices.
    """
    data = job.data or preset.data
    assert data, "infra.settings.rules_jobs tells of a job without data"
    slices = slices_of(job, shape)
    return JobSpec(
        name=job.name,
        preset=job.preset,
        slices=slices,
        mesh=job.mesh or MeshSpec(replica=slices.count, fsdp=slices.devices_per_slice),
        model=preset.model_with(job.model),
        data=data,
        optimizer=optimizer_spec(job, preset),
        training=training_spec(job, preset),
        storage=StorageSpec(
            path=f"{storage_root}/{job.name}", existing_run=job.existing_run, allow_changes=job.allow_changes
        ),
        initial_weights=job.initial_weights,
        compiler=CompilerSpec.model_validate(job.model_dump(include=set(CompilerSpec.model_fields))),
    )


def slices_of(job: Job, shape: SliceShape) -> SliceSpec:
    """The slices that a job takes, of this shape."""
    return slice_spec(shape, job.slices.count, job.slices.min_count)


def slice_spec(shape: SliceShape, count: int, min_count: int | None = None) -> SliceSpec:
    """`count` slices of `shape`, or at least `min_count` of them, in the trainer's terms."""
    return SliceSpec(
        generation=shape.generation,
        topology=shape.topology,
        count=count,
        min_count=min_count,
        hosts=shape.hosts,
        chips_per_host=shape.chips_per_host,
        devices_per_chip=shape.devices_per_chip,
        peak_bf16_tflops_per_chip=shape.peak_bf16_tflops_per_chip,
        hbm_gib_per_chip=shape.hbm_gib_per_chip,
    )
