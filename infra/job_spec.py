"""Settings to JobSpec: what the trainer is told.

Owns the derivation of a job's numbers from preset, stack file and accelerator table. How the
JobSpec reaches the pod is the business of `infra.pods`.
"""

from infra.accelerators import SliceShape
from infra.stack_file import Job, Settings
from workloads.spec import JobSpec, MeshSpec, Preset, SliceSpec, StorageSpec, TrainingSpec, load_preset


def job_spec(settings: Settings) -> JobSpec:
    """The specification of the stack's job."""
    preset = load_preset(settings.job.preset)
    training = training_spec(settings.job, preset)
    return assemble(settings.job, settings.job_group.shape, preset, training, f"gs://{settings.checkpoint_bucket}")


def training_spec(job: Job, preset: Preset) -> TrainingSpec:
    """The preset's training section with the stack file's values over it."""
    return TrainingSpec.model_validate(preset.training.model_dump() | dict(job.training))


def assemble(job: Job, shape: SliceShape, preset: Preset, training: TrainingSpec, storage_root: str) -> JobSpec:
    """The specification of `job` on slices of `shape`, with its files below `storage_root`.

    Raises:
        pydantic.ValidationError: the job's sizes do not fit its slices.
    """
    data = job.data or preset.data
    assert data, "infra.rules.job tells of a job without data"
    slices = slice_spec(shape, job.slices.count, job.slices.min_count)
    return JobSpec(
        name=job.name,
        preset=job.preset,
        slices=slices,
        mesh=job.mesh or MeshSpec(replica=slices.count, fsdp=slices.devices_per_slice),
        model=preset.model,
        data=data,
        optimizer=preset.optimizer,
        training=training,
        storage=StorageSpec(path=f"{storage_root}/{job.name}", existing_run=job.existing_run),
        initial_weights=job.initial_weights,
    )


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
