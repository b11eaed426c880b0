"""A job and where it is submitted: all inputs for rendering its JobSet, including the trainer's JobSpec."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infra.stack.names import SERVICE_ACCOUNT, programs_folder
from infra.stack.settings.jobs import AnyJob, FunctionJob, JobSettings, TrainingJob
from infra.stack.settings.schema import SliceGroup
from infra.stack.settings.stack import FleetSpec, Settings
from infra.stack.tpu import SliceShape
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

if TYPE_CHECKING:
    # Commands that look at a running job use this module and must not load Pulumi; see tests/cli/test_main.py.
    import pulumi


@dataclass(frozen=True, kw_only=True)
class Submission:
    """Inputs for rendering a JobSet."""

    fleet: FleetSpec
    job: AnyJob | FunctionJob
    spec: JobSpec | None
    """The trainer's specification. `None` if another program runs."""
    folder: str
    """The job's own folder of the checkpoint bucket: gs://BUCKET/JOB."""
    image: "pulumi.Input[str]"
    checking_image: "pulumi.Input[str] | None"
    """Image of the init container that checks the chips. `None` if there is no check."""
    queue: str
    """Name of the LocalQueue that admits it."""
    secrets: tuple[str, ...]
    """Environment variables that its pods get from the job's Secret."""
    usd_per_hour: float | None = None
    """Price that its pods know from the start. `None` if they read it from the ConfigMap of a job of the stack."""
    service_account: str = SERVICE_ACCOUNT
    """Kubernetes service account of its pods. Default: the one that each team of a stack has."""

    @property
    def namespace(self) -> str:
        return self.fleet.teams[self.job.team].namespace

    @property
    def groups(self) -> Mapping[str, SliceGroup]:
        """Return the slice groups that the job may run on. All have equal slices."""
        return self.fleet.groups_of(self.job)

    @property
    def slices(self) -> SliceSpec:
        return slices_of(self.job, self.shape)

    @property
    def compile_cache(self) -> str | None:
        """Return the folder that keeps compiled programs for all starts of the team's jobs. `None` for a folder in the
        pod, for one start only."""
        kept = isinstance(self.job, TrainingJob) and self.job.compile_cache == "bucket"
        return f"gs://{self.fleet.bucket}/{programs_folder(self.namespace)}" if kept else None

    @property
    def shape(self) -> SliceShape:
        """Return the shape of one slice, equal in all groups."""
        return self.groups[self.job.slices.group].shape

    @property
    def shares_host(self) -> bool:
        """Return whether the head of a Pathways job runs on the host of its worker, as on slices of one host."""
        return not self.shape.multi_host

    @property
    def rewrites_node_selector(self) -> bool:
        """Return whether Kueue adds to the pods' node selector when it admits the job.

        It adds the labels of the chosen flavor, and for a queued request the nodes that were created for it. After that
        Kueue owns the field, and server-side apply refuses to change anything else in the JobSet."""
        return len(self.groups) > 1 or any(group.capacity.queued for group in self.groups.values())


def submission(settings: Settings, job: AnyJob, image: "pulumi.Input[str] | None") -> Submission:
    """Return one of the stack's jobs as a submission. `image` is the trainer's image, if the stack has one."""
    files = f"gs://{settings.checkpoint_bucket}"
    return submission_to(FleetSpec.of(settings), job, image, files=files, secrets=settings.secrets_of(job))


def submission_to(
    fleet: FleetSpec,
    job: AnyJob | FunctionJob,
    image: "pulumi.Input[str] | None",
    *,
    files: str,
    secrets: Sequence[str],
) -> Submission:
    """Return a job as a submission to a fleet. Its files are in the folder of its name below the URL `files`."""
    own = job.image or image
    assert own is not None, "infra.stack.settings.read requires the trainer's image if a job needs it"
    shape = fleet.slices[job.slices.group].shape
    return Submission(
        fleet=fleet,
        job=job,
        spec=assemble(job, shape, load_preset(job.preset), files) if isinstance(job, TrainingJob) else None,
        folder=f"{files}/{job.name}",
        image=own,
        checking_image=image if job.check_slices else None,
        queue=job.queue,
        secrets=tuple(secrets),
    )


def job_specs(settings: Settings) -> dict[str, JobSpec]:
    """Return the specifications of the stack's training jobs, by name."""
    return {name: job_spec(settings, job) for name, job in settings.training_jobs.items()}


def job_spec(settings: Settings, job: TrainingJob) -> JobSpec:
    """Return the specification of one of the stack's training jobs."""
    shape = settings.group_of(job).shape
    return assemble(job, shape, load_preset(job.preset), f"gs://{settings.checkpoint_bucket}")


def assemble(job: TrainingJob, shape: SliceShape, preset: Preset, storage_root: str) -> JobSpec:
    """Return the specification of `job` on slices of `shape`, with its files below `storage_root`.

    Raise pydantic.ValidationError if the job's sizes do not fit its slices.
    """
    data = job.data or preset.data
    assert data, "infra.stack.settings.rules_jobs refuses a job without data"
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
        trackers=job.trackers,
        compiler=CompilerSpec.model_validate(job.model_dump(include=set(CompilerSpec.model_fields))),
    )


def training_spec(job: TrainingJob, preset: Preset) -> TrainingSpec:
    """Return the preset's training section, with the stack file's values replacing its own."""
    return TrainingSpec.model_validate(preset.training.model_dump() | dict(job.training))


def optimizer_spec(job: TrainingJob, preset: Preset) -> OptimizerSpec:
    """Return the preset's optimizer section, with the stack file's values replacing its own."""
    return OptimizerSpec.model_validate(preset.optimizer.model_dump() | dict(job.optimizer))


def slices_of(job: JobSettings, shape: SliceShape) -> SliceSpec:
    """Return the slices of a job."""
    return slice_spec(shape, job.slices.count, job.slices.min_count)


def slice_spec(shape: SliceShape, count: int, min_count: int | None = None) -> SliceSpec:
    """Return `count` slices of `shape`, or at least `min_count` of them, in the trainer's representation."""
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
