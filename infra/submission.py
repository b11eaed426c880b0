"""A job and the place it is submitted to.

Owns which settings reach the JobSet. How they are rendered is the business of `infra.jobset` and
the modules below it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from infra.accelerators import SliceShape
from infra.job_spec import job_spec
from infra.scheduling import Placement
from infra.stack_file import Job, Settings, SliceGroup
from workloads.spec import JobSpec


@dataclass(frozen=True)
class Submission:
    """What a JobSet is rendered from."""

    job: Job
    spec: JobSpec
    image: pulumi.Input[str]
    namespace: str
    groups: Mapping[str, SliceGroup]
    """Those that the job may run on, of equal slices."""
    placement: Placement
    mounted_bucket: str | None
    """Its files are seen as a folder by the pods."""
    compile_cache: str | None
    """Folder that keeps compiled programs for all starts of all jobs; None: the one in the image, for one start."""
    secrets: tuple[str, ...]
    """Environment variables that its pods take from the job's Secret."""

    @property
    def shape(self) -> SliceShape:
        """What one slice is made of, whichever group it is of."""
        return self.groups[self.job.slices.group].shape


def submission(settings: Settings, image: pulumi.Input[str]) -> Submission:
    """The stack's job on `image`."""
    datasets = settings.datasets
    return Submission(
        job=settings.job,
        spec=job_spec(settings),
        image=image,
        namespace=settings.job_team.namespace,
        groups=settings.job_groups,
        placement=settings.scheduling.placement,
        mounted_bucket=datasets.bucket if datasets and datasets.mount else None,
        compile_cache=settings.compile_cache if settings.job.compile_cache == "bucket" else None,
        secrets=tuple(sorted(settings.secrets)),
    )
