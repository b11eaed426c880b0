"""The shape of a stack file: one class for each section below `config`.

Owns names, types and meanings of the settings, and what follows from one section alone. What must
hold between sections lies in `infra.rules`; reading them from Pulumi in `infra.settings`.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from infra.accelerators import SliceShape, resolve
from infra.capacity import Capacity
from infra.names import ClusterName, DnsLabel, ProjectName
from workloads.spec import MeshSpec, PositiveInt, Spec

Priority = Literal["low", "normal", "high"]

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_IMAGE = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")


def _pinned(reference: str) -> str:
    if not _IMAGE.fullmatch(reference):
        raise ValueError("an image by digest, REPOSITORY@sha256:<64 hexadecimal digits>, since tags move")
    return reference


def _bucket(name: str) -> str:
    if not _BUCKET.fullmatch(name):
        raise ValueError("the name of a bucket, without gs:// and without folders")
    return name


class Cloud(Spec):
    """Where everything lies. A change of any of these replaces the cluster."""

    project: ProjectName
    region: str
    zone: str
    """The zone of all nodes: a slice lies in one zone, and slices of a job near each other."""


class Cluster(Spec):
    """The GKE cluster and the small pool for its controllers."""

    name: ClusterName
    """Begins the names of everything else in the project. A change replaces the cluster."""
    release_channel: Literal["RAPID", "REGULAR", "STABLE"]
    deletion_protection: bool
    """`destroy` is refused while this is true; set it false, `up`, then `destroy`."""
    system_machine_type: str
    """Machine type of the CPU nodes that run JobSet, Kueue and GKE's own pods."""
    system_nodes: PositiveInt


class SliceGroup(Spec):
    """Equal TPU slices. A change of anything but `count` replaces every slice of the group."""

    generation: str
    topology: str
    machine_type: str | None = None
    """Unset: the machine type of the topology's multi-host slice, or the only one it has."""
    count: PositiveInt
    """Slices; a node pool each."""
    capacity: Capacity
    """`on-demand`, `spot`, or a mapping with `kind` and the settings of one class of `infra.capacity`."""

    @property
    def shape(self) -> SliceShape:
        """What one slice of the group is made of."""
        return resolve(self.generation, self.topology, self.machine_type)

    @property
    def chips(self) -> int:
        """Chips of all slices of the group."""
        return self.count * self.shape.chips


class Team(Spec):
    """People who share a namespace, a queue and a quota."""

    namespace: DnsLabel
    quota: Annotated[Mapping[str, Annotated[int, Field(ge=0)]], Field(min_length=1)]
    """Chips by slice group that are the team's own. 0: it may only borrow idle ones. A group that
    is not named is closed to the team."""


class Datasets(Spec):
    """Where training data lies, if not in the image."""

    bucket: Annotated[str, AfterValidator(_bucket)]
    """A bucket that exists. The stack does not make it: data outlive a cluster and serve several.
    The trainers of all teams may read it."""


class Image(Spec):
    """The trainer's image: one that lies in a registry, or one that `up` builds."""

    reference: Annotated[str, AfterValidator(_pinned)] | None = None
    """By digest. The choice for long jobs, since no change of a source file touches it."""
    build: Literal[True] | None = None
    """`up` builds `workloads` by the Docker daemon here and pushes it; a changed source file
    replaces the job. Docker must be logged in: `gcloud auth configure-docker REGION-docker.pkg.dev`."""

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.reference is None) == (self.build is None):
            raise ValueError("either reference (an image by digest) or build: true")
        return self


class JobSlices(Spec):
    """What the job runs on."""

    group: str
    count: PositiveInt
    """Slices that the job takes of the group."""


class Job(Spec):
    """The training job. Any change but of `priority` replaces the JobSet: training starts over or resumes."""

    name: DnsLabel
    team: str
    slices: JobSlices
    preset: str
    """A file of `workloads/presets`, by name."""
    priority: Priority
    """A higher one may evict a lower one of the same team."""
    max_restarts: Annotated[int, Field(ge=0)]
    """Restarts that a crash or hang may use up; preemptions and bad hosts are not counted."""
    existing_run: Literal["resume", "anew"]
    """When the bucket holds a run of this job's name: go on with it, or begin a new one beside it."""
    training: Mapping[str, object] = {}
    """Replaces single values of the preset's `training` section."""
    mesh: MeshSpec | None = None
    """Unset: one replica per slice, parameters sharded over the whole slice."""


class Settings(Spec):
    """A whole stack file. Made by `infra.settings`, which checks what must hold between sections."""

    cloud: Cloud
    cluster: Cluster
    slices: Mapping[str, SliceGroup]
    teams: Mapping[str, Team]
    image: Image
    job: Job
    datasets: Datasets | None = None

    @property
    def checkpoint_bucket(self) -> str:
        """Name of the bucket; bucket names are shared by all of Google Cloud."""
        return f"{self.cloud.project}-{self.cluster.name}-checkpoints"

    @property
    def dataset_bucket(self) -> str | None:
        """Name of the bucket with training data, if the stack file names one."""
        return self.datasets.bucket if self.datasets else None

    @property
    def job_team(self) -> Team:
        """The team that submits the job."""
        return self.teams[self.job.team]

    @property
    def job_group(self) -> SliceGroup:
        """The slice group that the job runs on."""
        return self.slices[self.job.slices.group]
