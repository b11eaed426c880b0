"""The shape of a stack file: one class for each section below `config`.

Owns names, types and meanings of the settings, and what follows from one section alone. What must
hold between sections lies in `infra.rules`; reading them from Pulumi in `infra.settings`.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self, get_args

from pydantic import BeforeValidator, Field, InstanceOf, model_validator

from infra import folders
from infra.accelerators import SliceShape, resolve
from infra.addresses import Cidr, Network
from infra.capacity import Capacity
from infra.controllers import Resources
from infra.environment import Environment
from infra.hidden import Hidden
from infra.jobs import ContainerJob, Job, PodLevel, TrainingJob
from infra.maintenance import MaintenanceWindow
from infra.monitoring.section import Monitoring
from infra.names import (
    BucketName,
    ClusterName,
    CpuMachine,
    DiskImage,
    DnsLabel,
    Email,
    KmsKey,
    Labels,
    PinnedImage,
    ProjectName,
    SecurityGroup,
)
from infra.scheduling import Preemption, Scheduling, TeamQuota
from infra.spending import Budget, Prices
from workloads.spec import MOST_SLICES, NUMBER, PositiveInt, Spec, WholeNumber


class Cloud(Spec):
    """Where everything lies. A change of any of these needs a new cluster: destroy, then up."""

    project: ProjectName
    region: str
    zone: str
    """Zone of the system nodes, and of every slice group that names no other."""


class Cluster(Spec):
    """The GKE cluster and the small pool for its controllers."""

    name: ClusterName
    """Begins the names of everything else in the project. A change needs a new cluster."""
    release_channel: Literal["RAPID", "REGULAR", "STABLE"]
    deletion_protection: bool
    """`destroy` is refused while this is true; set it false, `up`, then `destroy`."""
    system_machine_type: CpuMachine
    """Machine type of the CPU nodes that run JobSet, Kueue and GKE's own pods. Requests of the two grow with the number
    of TPU hosts and may take half of a machine."""
    system_nodes: PositiveInt
    authorized_networks: Mapping[str, Cidr] = {}
    """Networks by name from which the control plane's IP endpoint answers. Empty: it has none, and the
    DNS endpoint, which asks for a Google identity, is the only way in."""
    security_group: SecurityGroup | None = None
    """The Google group that holds the groups of all teams, `gke-security-groups@DOMAIN`
    (https://cloud.google.com/kubernetes-engine/docs/how-to/google-groups-rbac). Unset: GKE knows people alone.
    A cluster that has one keeps it when it is removed here."""
    encryption_key: KmsKey | None = None
    """Full name of the Cloud KMS key that encrypts the cluster's Secrets; it must be in `cloud.region`, and GKE's own
    account must be allowed to use it (https://cloud.google.com/kubernetes-engine/docs/how-to/encrypting-secrets).
    Unset: Google's key. A stack whose jobs have secrets needs one."""
    maintenance: MaintenanceWindow | None = None
    """Unset: GKE maintains control plane and system nodes at any time. TPU nodes are left alone either way."""


def _as_text(written: object) -> object:
    """A number of chips, which `infra.rules.slices` answers with the topology that has them."""
    return str(written) if isinstance(written, int) and not isinstance(written, bool) else written


class SliceGroup(Spec):
    """Equal TPU slices. A change of anything but `count` replaces every slice of the group."""

    generation: str
    topology: Annotated[str, BeforeValidator(_as_text)]
    machine_type: str | None = None
    """Unset: the machine type of the topology's multi-host slice, or the only one it has."""
    count: Annotated[PositiveInt, Field(le=MOST_SLICES)]
    """Slices; a node pool each."""
    capacity: Capacity
    """`on-demand`, `spot`, or a mapping with `kind` and the settings of one class of `infra.capacity`."""
    zone: str | None = None
    """Zone of all slices of the group, in `cloud.region`; a reservation must be in the same zone. Unset: `cloud.zone`.
    Groups in different zones let a job fall back from one zone to another (`slices.fallback` of the job)."""
    boot_disk_gb: Annotated[WholeNumber, Field(ge=50)] = 100
    """Images, logs and files that pods write to their own file system must fit."""
    image_disk: DiskImage | None = None
    """A disk image that holds the trainer's image, so that nodes need not pull it
    (https://cloud.google.com/kubernetes-engine/docs/how-to/data-container-image-preloading)."""
    second_network: bool = False
    """Hosts use their second network interface, on a network of its own. Pods of a job with
    `host_network` alone gain from it."""

    @property
    def shape(self) -> SliceShape:
        """What one slice of the group is made of."""
        return resolve(self.generation, self.topology, self.machine_type)

    @property
    def hosts(self) -> int:
        """Of all its slices."""
        return self.count * self.shape.hosts

    @property
    def chips(self) -> int:
        """Chips of all slices of the group."""
        return self.count * self.shape.chips

    def zone_in(self, cloud: Cloud) -> str:
        """Return the zone that all slices of the group are in."""
        return self.zone or cloud.zone


class Members(Spec):
    """Who may submit, see, suspend and delete the jobs of a team, and nothing else. See `docs/security.md`."""

    users: tuple[Email, ...] = ()
    """Google accounts of people, or service accounts, by address."""
    groups: tuple[Email, ...] = ()
    """Google groups, each a member of `cluster.security_group`."""


_LEAST_HEAD_LIMIT = Resources(millicores=4000, memory_mib=16 * 1024)
"""Enough for a program that only starts work on the hosts of slices."""


class Team(Spec):
    """People who share a namespace, a queue and a quota."""

    namespace: DnsLabel
    quota: Annotated[Mapping[str, TeamQuota], Field(min_length=1)]
    """Chips by slice group. A group that is not named is closed to the team."""
    weight: Annotated[float, Field(gt=0, multiple_of=0.001), NUMBER] | None = None
    """Share of idle chips under fair sharing, against the other teams'. Unset: 1."""
    preemption: Preemption = Preemption()
    members: Members = Members()
    """Unset: administrators of the cluster alone."""
    admission: Literal["open", "hold", "drain"] = "open"
    """`hold`: no new job starts. `drain`: running ones are stopped as well, and wait."""


DATASETS_FOLDER = "/datasets"
"""Where pods see the mounted bucket."""


class Datasets(Spec):
    """Where training data lies, if not in the image."""

    bucket: BucketName
    """A bucket that exists. It is no part of the stack: data outlive a cluster and serve several.
    The trainers of all teams may read it."""
    mount: bool = False
    """Pods see it as the folder `/datasets`, read-only, through Cloud Storage FUSE."""


class Image(Spec):
    """The trainer's image: one that lies in a registry, or one that `up` builds."""

    reference: PinnedImage | None = None
    """By digest. The choice for long jobs, since no change of a source file touches it."""
    build: Literal[True] | None = None
    """`up` builds `workloads` by the Docker daemon here and pushes it; a changed source file
    replaces the job. Docker must be logged in: `gcloud auth configure-docker REGION-docker.pkg.dev`."""

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.reference is None) == (self.build is None):
            raise ValueError("either reference (an image by digest) or build: true")
        return self


class Options(Spec):
    """What is said of the whole stack."""

    labels: Labels = {}
    """Labels of cluster, nodes and buckets in the bill."""
    allow_interruption: bool = False
    """Agree to a change or destroy that takes the slices away from a running job."""


class Settings(Options):
    """A whole stack file. Made by `infra.settings`, which checks what must hold between sections."""

    cloud: Cloud
    cluster: Cluster
    slices: Mapping[str, SliceGroup]
    teams: Mapping[str, Team]
    image: Image | None = None
    """Not needed by a stack whose jobs are all containers, or that has none. Functions run in it."""
    jobs: Mapping[str, TrainingJob | ContainerJob]
    """What runs, by name. One training job may stand as `job` instead, a mapping with the same keys and its `name`.
    `{}` is a stack without jobs: a cluster with queues, to which others submit."""
    datasets: Datasets | None = None
    network: Network = Network()
    scheduling: Scheduling = Scheduling()
    prices: Prices = Prices()
    budget: Budget | None = None
    environment: Environment | None = None
    monitoring: Monitoring = Monitoring()
    secrets: Mapping[str, InstanceOf[Hidden]] = {}
    """Environment variables of the jobs' pods by name, for tokens of a data hub or an experiment tracker:
    `pulumi config set --secret --path 'tpu-multislice:secrets.NAME'`. No other section may hold a secret.
    A changed value reaches the job at its next start, an added or removed name replaces it; see
    `docs/backends.md`."""

    @property
    def checkpoint_bucket(self) -> str:
        """Name of the bucket; bucket names are shared by all of Google Cloud."""
        return f"{self.cloud.project}-{self.cluster.name}-checkpoints"

    @property
    def written_folders(self) -> Mapping[str, Sequence[str]]:
        """Folders of the checkpoint bucket that pods write: by namespace, and those of pods on their hosts' network."""
        teams = {name: [folders.of_team(team.namespace)] for name, team in self.teams.items()}
        for name, job in self.jobs.items():
            teams[job.team].append(name)
        by_namespace = {self.teams[name].namespace: written for name, written in teams.items()}
        on_hosts = [folder for name in sorted(self.host_network_teams) for folder in teams[name]]
        return by_namespace | ({folders.ON_HOSTS: on_hosts} if on_hosts else {})

    @property
    def resource_labels(self) -> Mapping[str, str]:
        """Labels of all that is billed. Never empty: GKE ignores that the last one of a pool is removed."""
        of_environment = self.environment.labels if self.environment else {}
        return {"managed-by": "tpu-multislice", **self.labels, **of_environment}

    @property
    def second_network(self) -> bool:
        """Whether hosts of any slice group use their second network interface."""
        return any(group.second_network for group in self.slices.values())

    @property
    def mounts_datasets(self) -> bool:
        """Whether pods see the bucket with training data as a folder."""
        return self.datasets is not None and self.datasets.mount

    @property
    def dataset_bucket(self) -> str | None:
        """Name of the bucket with training data, if the stack file names one."""
        return self.datasets.bucket if self.datasets else None

    @property
    def training_jobs(self) -> Mapping[str, TrainingJob]:
        """Those that run the trainer of this repository."""
        return {name: job for name, job in self.jobs.items() if isinstance(job, TrainingJob)}

    @property
    def host_network_teams(self) -> frozenset[str]:
        """The teams with a job whose pods use the network of their host."""
        return frozenset(job.team for job in self.jobs.values() if job.host_network)

    @property
    def pod_levels(self) -> Mapping[str, PodLevel]:
        """Pod Security level of each team's namespace: the strictest that admits the pods of all its jobs."""
        strictest_last = get_args(PodLevel)[::-1]
        asked = {(job.team, job.pod_level) for job in self.jobs.values()} | {
            (name, "restricted") for name in self.teams
        }
        return {name: next(level for level in strictest_last if (name, level) in asked) for name in self.teams}

    @property
    def head_limits(self) -> Mapping[str, Resources]:
        """Largest head that a pod of each team may be: that of the team's largest job by Pathways, if it has one."""
        heads = {name: [_LEAST_HEAD_LIMIT] for name in self.teams}
        for job in self.jobs.values():
            if isinstance(job, ContainerJob) and job.pathways:
                size = Resources(1000 * job.pathways.head_vcpus, 1024 * job.pathways.head_memory_gib)
                heads[job.team].append(size)
        return {
            name: Resources(max(each.millicores for each in sizes), max(each.memory_mib for each in sizes))
            for name, sizes in heads.items()
        }

    def team_of(self, job: Job) -> Team:
        """The team that submits the job."""
        return self.teams[job.team]

    def group_of(self, job: Job) -> SliceGroup:
        """The slice group that the job is meant for; those it may fall back to have equal slices."""
        return self.slices[job.slices.group]

    def groups_of(self, job: Job) -> Mapping[str, SliceGroup]:
        """The slice groups that the job may run on, the best first."""
        return {name: self.slices[name] for name in job.slices.groups}

    def secrets_of(self, job: Job) -> tuple[str, ...]:
        """Names of the secrets that the job's pods get."""
        return tuple(sorted(self.secrets if job.secrets is None else set(job.secrets)))
