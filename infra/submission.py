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
from workloads.spec import JOB_SPEC_VARIABLE, SliceSpec


@dataclass(frozen=True)
class Program:
    """What the container of every host runs."""

    module: str
    """Of the image, as `python -m MODULE`."""
    variables: Mapping[str, str]
    """Environment variables that tell it its task."""


@dataclass(frozen=True)
class Submission:
    """What a JobSet is rendered from."""

    job: Job
    slices: SliceSpec
    program: Program
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
    datasets, spec = settings.datasets, job_spec(settings)
    return Submission(
        job=settings.job,
        slices=spec.slices,
        program=Program("workloads.training", {JOB_SPEC_VARIABLE: spec.model_dump_json()}),
        image=image,
        namespace=settings.job_team.namespace,
        groups=settings.job_groups,
        placement=settings.scheduling.placement,
        mounted_bucket=datasets.bucket if datasets and datasets.mount else None,
        compile_cache=settings.compile_cache if settings.job.compile_cache == "bucket" else None,
        secrets=tuple(sorted(settings.secrets)),
    )
