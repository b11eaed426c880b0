"""The sections of a stack file: one class for each section below `config`. The rules between them are in `rules_*`."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from infra.capacity import Capacity
from infra.settings.values import (
    BucketName,
    Cidr,
    ClusterName,
    CpuMachine,
    DiskImage,
    DnsLabel,
    Email,
    Instant,
    KmsKey,
    Labels,
    PinnedImage,
    ProjectName,
    SecurityGroup,
)
from infra.tpu import SliceShape, resolve
from workloads.spec import MOST_SLICES, NUMBER, Number, PositiveInt, Spec, WholeNumber

DATASETS_FOLDER = "/datasets"
"""Where pods see the mounted bucket."""
SLICE_PODS_PER_NODE, SYSTEM_PODS_PER_NODE = 32, 110
"""Most pods of a node. Slices run one trainer and GKE's own pods; the default of 110 would take four times the
addresses."""
_MIDNIGHT_OF_PULUMI = " 00:00:00 +0000 UTC"
"""What Pulumi adds to a date that has no quotation marks in the stack file."""

Chips = Annotated[WholeNumber, Field(ge=0)]
Placement = Literal["exclusive-topology", "topology-aware"]
Usd = Annotated[Number, Field(gt=0, allow_inf_nan=False)]


class Cloud(Spec):
    """Where the stack is. A change of any of these needs a new cluster: destroy, then up."""

    project: ProjectName
    region: str
    zone: str
    """Zone of the system nodes, and of every slice group that names no other."""


class Network(Spec):
    """Address ranges of the VPC. They must not overlap with those of networks it is peered with."""

    nodes: Cidr = "10.0.0.0/18"
    """Addresses of nodes, one each. It can be widened in place; any other change needs a new cluster."""
    pods: Cidr = "10.16.0.0/12"
    """Addresses of pods. GKE gives each node twice as many as it may have pods. A change needs a new cluster."""
    services: Cidr = "10.1.0.0/20"
    """Cluster addresses of Services. A change needs a new cluster."""
    second_nodes: Cidr = "10.2.0.0/18"
    """Addresses of nodes of slice groups with `second_network`, one each. Used only if there is such a group."""


class MaintenanceWindow(Spec):
    """A recurring time in which GKE may maintain the cluster."""

    start: Instant
    """Start of the first window, such as 2026-01-03T02:00:00Z."""
    end: Instant
    """End of the first window. At least 48 hours in 32 days must be open to maintenance."""
    recurrence: Annotated[str, Field(pattern="^FREQ=(DAILY|WEEKLY)")]
    """Recurrence as in RFC 5545, such as FREQ=WEEKLY;BYDAY=SA,SU."""

    @model_validator(mode="after")
    def _ends_after_it_starts(self) -> Self:
        if self.end <= self.start:
            raise ValueError("a window that ends after it starts")
        return self


class Cluster(Spec):
    """The GKE cluster and the small node pool for its controllers."""

    name: ClusterName
    """Name of the cluster, and prefix of the names of everything else in the project. A change needs a new cluster."""
    release_channel: Literal["RAPID", "REGULAR", "STABLE"]
    deletion_protection: bool
    """Whether GKE refuses to delete the cluster. Before `destroy`, set it false and run `up`."""
    system_machine_type: CpuMachine
    """Machine type of the CPU nodes that run JobSet, Kueue and GKE's own pods. What the first two request grows with
    the number of TPU hosts and may take half of a machine."""
    system_nodes: PositiveInt
    authorized_networks: Mapping[str, Cidr] = {}
    """Networks, by name, that may reach the control plane's IP endpoint. Default: none, so there is no such endpoint
    and the DNS endpoint, which asks for a Google identity, is the only way in."""
    security_group: SecurityGroup | None = None
    """Google group that contains the groups of all teams, `gke-security-groups@DOMAIN`
    (https://cloud.google.com/kubernetes-engine/docs/how-to/google-groups-rbac). Default: GKE knows no groups.
    Removing it here leaves it on the cluster."""
    encryption_key: KmsKey | None = None
    """Full name of the Cloud KMS key that encrypts the cluster's Secrets. It must be in `cloud.region`, and GKE's own
    account must be allowed to use it (https://cloud.google.com/kubernetes-engine/docs/how-to/encrypting-secrets).
    Default: Google's key. A stack whose jobs have secrets needs one."""
    maintenance: MaintenanceWindow | None = None
    """When GKE may maintain control plane and system nodes. Default: at any time. TPU nodes are never maintained."""


def _as_text(written: object) -> object:
    """A number of chips, which `rules_cloud` answers with the topology that has them."""
    return str(written) if isinstance(written, int) and not isinstance(written, bool) else written


class SliceGroup(Spec):
    """Equal TPU slices. A change of anything but `count` replaces every slice of the group."""

    generation: str
    topology: Annotated[str, BeforeValidator(_as_text)]
    machine_type: str | None = None
    """Machine type of the hosts. Default: that of the topology's multi-host slice, or the only one it has."""
    count: Annotated[PositiveInt, Field(le=MOST_SLICES)]
    """Number of slices; each is a node pool."""
    capacity: Capacity
    """Where the chips come from: `on-demand`, `spot`, or a mapping with `kind` and the settings of a class of
    `infra.capacity`."""
    zone: str | None = None
    """Zone of all slices of the group, in `cloud.region`. A reservation must be in the same zone. Default:
    `cloud.zone`. Groups in different zones let a job fall back from one zone to another (`slices.fallback` of the
    job)."""
    boot_disk_gb: Annotated[WholeNumber, Field(ge=50)] = 100
    """Size of the boot disk in GB. Images, logs and files that pods write to their own file system must fit."""
    image_disk: DiskImage | None = None
    """Disk image that holds the trainer's image, so that nodes need not pull it
    (https://cloud.google.com/kubernetes-engine/docs/how-to/data-container-image-preloading). Default: none."""
    second_network: bool = False
    """Whether hosts use their second network interface, on a network of its own. Only pods of a job with
    `host_network` gain from it."""

    @property
    def shape(self) -> SliceShape:
        """One slice of the group."""
        return resolve(self.generation, self.topology, self.machine_type)

    @property
    def hosts(self) -> int:
        """Hosts of all its slices."""
        return self.count * self.shape.hosts

    @property
    def chips(self) -> int:
        """Chips of all its slices."""
        return self.count * self.shape.chips

    def zone_in(self, cloud: Cloud) -> str:
        """Return the zone that all slices of the group are in."""
        return self.zone or cloud.zone


class Quota(Spec):
    """A team's share of one slice group. May be written as a plain number of chips."""

    chips: Chips
    """Chips that are the team's own (Kueue's nominal quota). With 0 it may only borrow idle ones."""
    borrowing_limit: Chips | None = None
    """Most chips of other teams that it may use while they are idle. Default: all."""
    lending_limit: Chips | None = None
    """Most of its own chips that others may use while they are idle. Default: all."""


def _as_quota(written: object) -> object:
    return written if isinstance(written, Mapping) else {"chips": written}


TeamQuota = Annotated[Quota, BeforeValidator(_as_quota)]


class Preemption(Spec):
    """Which running jobs a team's waiting job may preempt."""

    within_team: Literal["never", "lower-priority", "lower-or-newer-equal-priority"] = "lower-priority"
    """Jobs of the same team."""
    reclaim: Literal["never", "lower-priority", "any"] = "any"
    """Jobs of other teams that run on chips lent by this one."""
    while_borrowing: Literal["never", "lower-priority"] = "never"
    """Jobs of other teams on their own chips, if this job would borrow those chips. Not with fair sharing."""


class Members(Spec):
    """Who may submit, see, suspend and delete the jobs of a team, and nothing else. See `docs/security.md`."""

    users: tuple[Email, ...] = ()
    """Google accounts of people, or service accounts, by address."""
    groups: tuple[Email, ...] = ()
    """Google groups, each a member of `cluster.security_group`."""


class Team(Spec):
    """People who share a namespace, a queue and a quota."""

    namespace: DnsLabel
    quota: Annotated[Mapping[str, TeamQuota], Field(min_length=1)]
    """Chips by slice group. The team cannot use a group that is not listed."""
    weight: Annotated[float, Field(gt=0, multiple_of=0.001), NUMBER] | None = None
    """Share of idle chips under fair sharing, relative to the other teams' weights. Default: 1."""
    preemption: Preemption = Preemption()
    members: Members = Members()
    """People with access to the team's namespace. Default: only administrators of the cluster."""
    admission: Literal["open", "hold", "drain"] = "open"
    """Whether jobs start. `hold`: no new job starts. `drain`: running ones are stopped as well, and wait."""


class Requeueing(Spec):
    """When a job whose pods did not start in time is tried again."""

    limit: Annotated[WholeNumber, Field(ge=0)] | None = None
    """Number of retries, after which its workload is deactivated and a person must look. Default: no limit."""
    base_seconds: PositiveInt = 60
    """Pause before the first retry. It doubles with each one."""
    max_seconds: PositiveInt = 3600
    """Longest pause."""


class Scheduling(Spec):
    """Settings of all queues."""

    placement: Placement = "exclusive-topology"
    """What keeps a slice of a job in one node pool: JobSet's exclusive topology, or Kueue's topology-aware scheduling,
    which also counts the free hosts before it admits a job. Before a change on a live stack let the jobs end, or drain
    the teams: Kueue forgets the chips of jobs that keep running."""
    fair_sharing: bool = False
    """Whether idle chips go to the team that uses the smallest share for its weight, instead of the first that asks."""
    ready_minutes: PositiveInt | None = None
    """Minutes that an admitted job may be without all its pods. Default: 30, or a week if a group's chips come by
    flex-start, because waiting pods are the request for them."""
    recovery_minutes: PositiveInt | None = None
    """Minutes that a running job may be without some of its pods. Default: 60, or a week as above."""
    requeueing: Requeueing = Requeueing()


class Image(Spec):
    """The trainer's image: one from a registry, or one that `up` builds."""

    reference: PinnedImage | None = None
    """Image by digest. Right for long jobs, because a changed source file does not change it."""
    build: Literal[True] | None = None
    """Build `workloads` with the local Docker daemon and push it. A changed source file replaces the job. Docker must
    be logged in: `gcloud auth configure-docker REGION-docker.pkg.dev`."""

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.reference is None) == (self.build is None):
            raise ValueError("either reference (an image by digest) or build: true")
        return self


class Datasets(Spec):
    """Where training data is stored, unless it is in the image."""

    bucket: BucketName
    """An existing bucket. It is not part of the stack, because data outlive a cluster and serve several. The trainers
    of all teams may read it."""
    mount: bool = False
    """Whether pods see it as the folder `/datasets`, read-only, through Cloud Storage FUSE."""


class Prices(Spec):
    """Contract prices of chips. List prices are in `infra/prices.yaml`, each with its source."""

    usd_per_chip_hour: Mapping[str, Usd] = {}
    """US dollars per chip and hour by slice group, in place of the list price. An on-demand group without a known list
    price needs one. Any other group without one has no price in the bill."""


def _as_date(written: object) -> object:
    return written.removesuffix(_MIDNIGHT_OF_PULUMI) if isinstance(written, str) else written


class Budget(Spec):
    """What the stack may cost. A plan that costs more is refused. Only chips count."""

    usd_per_hour: Usd | None = None
    """Most US dollars per hour when all capacity that the stack may request is there. The price of every slice group
    must be known. Default: no limit."""
    usd_total: Usd | None = None
    """Most US dollars that all jobs together may cost while they hold chips. Each job needs `max_hours`, because an
    estimate of its steps would not stop it. A changed job counts from zero again, and idle slices do not count.
    Default: no limit."""
    expires_on: Annotated[date, BeforeValidator(_as_date)] | None = None
    """Last day on which the stack may be changed, in UTC. After it previews and updates are refused, but not `destroy`.
    Default: none."""


class Environment(Spec):
    """Makes the stack an environment: a copy of another stack with an end, as `multislice env create` makes it.

    A destroy leaves nothing of it. It also deletes the checkpoint bucket and everything in it.
    """

    source: DnsLabel
    """Stack that it was made from."""
    expires_at: Instant
    """Time in UTC, such as 2026-11-21T18:00:00Z, from which on previews and updates are refused, but not `destroy`."""

    @property
    def end(self) -> datetime:
        return datetime.fromisoformat(self.expires_at)

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels by which its leftovers are found in the cloud. Their values may have no colons and no capitals."""
        return {"environment-of": self.source, "expires-at": self.expires_at.lower().replace(":", "-")}


class Monitoring(Spec):
    """Metrics in Google Managed Prometheus, alerts on them, and a dashboard for Grafana; see `docs/monitoring.md`."""

    enabled: bool = True
    """Whether the stack declares collection, alerts and dashboard. The cluster has Managed Prometheus either way, and
    the trainer's hosts serve their metrics."""


class Options(Spec):
    """Settings of the whole stack."""

    labels: Labels = {}
    """Labels of cluster, nodes and buckets in the bill."""
    allow_interruption: bool = False
    """Whether a change or destroy may take the slices away from a running job."""
