"""A job and the place it is submitted to.

Owns which settings reach the JobSet. How they are rendered is the business of `infra.jobset` and
the modules below it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from infra import names
from infra.accelerators import SliceShape
from infra.job_spec import job_spec, slices_of
from infra.settings.jobs import AnyJob, ContainerJob, FunctionJob, TrainingJob
from infra.settings.schema import Placement, SliceGroup
from infra.settings.stack import Settings
from workloads.spec import JobSpec, SliceSpec


@dataclass(frozen=True)
class Submission:
    """What a JobSet is rendered from."""

    job: AnyJob | FunctionJob
    slices: SliceSpec
    spec: JobSpec | None
    """What the trainer is told; None where another program runs."""
    folder: str
    """Of the checkpoint bucket, the job's own: gs://BUCKET/JOB."""
    image: pulumi.Input[str]
    checking_image: pulumi.Input[str] | None
    """Image of the init container that checks the devices; None: there is no such check."""
    namespace: str
    groups: Mapping[str, SliceGroup]
    """Those that the job may run on, of equal slices."""
    placement: Placement
    mounted_bucket: str | None
    """Its files are seen as a folder by the pods."""
    compile_cache: str | None
    """Folder that keeps compiled programs for all starts of the team's jobs; None: the image's, for one start."""
    secrets: tuple[str, ...]
    """Environment variables that its pods take from the job's Secret."""

    @property
    def shape(self) -> SliceShape:
        """What one slice is made of, whichever group it is of."""
        return self.groups[self.job.slices.group].shape


def submission(settings: Settings, job: AnyJob, image: pulumi.Input[str] | None) -> Submission:
    """One of the stack's jobs; `image` is that of the trainer, if the stack has one."""
    datasets, namespace = settings.datasets, settings.team_of(job).namespace
    spec = job_spec(settings, job) if isinstance(job, TrainingJob) else None
    own = job.image if isinstance(job, ContainerJob) else image
    assert own is not None, "infra.settings asks for the trainer's image where a job needs it"
    cached = isinstance(job, TrainingJob) and job.compile_cache == "bucket"
    return Submission(
        job=job,
        slices=slices_of(job, settings.group_of(job).shape),
        spec=spec,
        folder=f"gs://{settings.checkpoint_bucket}/{job.name}",
        image=own,
        checking_image=image if isinstance(job, ContainerJob) and job.check_slices else None,
        namespace=namespace,
        groups=settings.groups_of(job),
        placement=settings.scheduling.placement,
        mounted_bucket=datasets.bucket if datasets and datasets.mount else None,
        compile_cache=f"gs://{settings.checkpoint_bucket}/{names.programs_folder(namespace)}" if cached else None,
        secrets=settings.secrets_of(job),
    )
