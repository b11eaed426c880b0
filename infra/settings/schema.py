"""The sections of a stack file: one class for each section below `config`."""

from collections.abc import Mapping
from datetime import date, datetime
from ipaddress import IPv4Network
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from infra.capacity import Capacity
from infra.settings.values import (
    BucketName,
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

SLICE_PODS_PER_NODE = 32
"""One trainer and GKE's own; the default of 110 would take four times the addresses."""


SYSTEM_PODS_PER_NODE = 110


def _range(text: str) -> str:
    try:
        IPv4Network(text)
    except ValueError:
        raise ValueError("a range of IPv4 addresses, such as 10.0.0.0/18, whose first address is its network") from None
    return text


Cidr = Annotated[str, AfterValidator(_range)]


class Network(Spec):
    """Addresses that the VPC uses. They must not meet those of networks it is peered with."""

    nodes: Cidr = "10.0.0.0/18"
    """One for each node. It can be widened in place; any other change needs a new cluster."""
    pods: Cidr = "10.16.0.0/12"
    """GKE gives each node a block of twice as many as it may have pods. A change needs a new cluster."""
    services: Cidr = "10.1.0.0/20"
    """Cluster addresses of Services. A change needs a new cluster."""
    second_nodes: Cidr = "10.2.0.0/18"
    """One for each node of slice groups with `second_network`; used only if there is one."""


class MaintenanceWindow(Spec):
    """A recurring time for maintenance, in the terms of GKE."""

    start: Instant
    """First begin, such as 2026-01-03T02:00:00Z."""
    end: Instant
    """First end; at least 48 hours in 32 days must be open to maintenance."""
    recurrence: Annotated[str, Field(pattern="^FREQ=(DAILY|WEEKLY)")]
    """As in RFC 5545, such as FREQ=WEEKLY;BYDAY=SA,SU."""

    @model_validator(mode="after")
    def _ends_after_it_starts(self) -> Self:
        if self.end <= self.start:
            raise ValueError("a window that ends after it starts")
        return self


Chips = Annotated[WholeNumber, Field(ge=0)]


Placement = Literal["exclusive-topology", "topology-aware"]


class Quota(Spec):
    """A team's share of one slice group. May be written as its number of chips alone."""

    chips: Chips
    """The team's own (Kueue's nominal quota). 0: it may only borrow idle ones."""
    borrowing_limit: Chips | None = None
    """Most chips of other teams that it may use while they are idle. Unset: all."""
    lending_limit: Chips | None = None
    """Most of its own chips that others may use while they are idle. Unset: all."""


def _as_quota(written: object) -> object:
    return written if isinstance(written, Mapping) else {"chips": written}


TeamQuota = Annotated[Quota, BeforeValidator(_as_quota)]


class Preemption(Spec):
    """Whom a team's waiting job may push out."""

    within_team: Literal["never", "lower-priority", "lower-or-newer-equal-priority"] = "lower-priority"
    reclaim: Literal["never", "lower-priority", "any"] = "any"
    """Jobs of other teams that run on chips lent by this one."""
    while_borrowing: Literal["never", "lower-priority"] = "never"
    """Jobs of other teams on their own chips, for a job that would borrow them. Not with fair sharing."""


class Requeueing(Spec):
    """When a job whose pods did not come up in time is tried again."""

    limit: Annotated[WholeNumber, Field(ge=0)] | None = None
    """Times; then its workload is deactivated and a person must look. Unset: for ever."""
    base_seconds: PositiveInt = 60
    """Pause after the first time; it doubles with each one."""
    max_seconds: PositiveInt = 3600


class Scheduling(Spec):
    """What holds for all queues."""

    placement: Placement = "exclusive-topology"
    """Who keeps a slice of the job in one node pool: JobSet's exclusive topology, or Kueue's
    topology-aware scheduling, which also counts the free hosts before it admits a job. Before a change
    on a live stack let the jobs end, or drain the teams: Kueue forgets the chips of jobs that run on."""
    fair_sharing: bool = False
    """Idle chips go to the team that uses the smallest share for its weight, not to the first that asks."""
    ready_minutes: PositiveInt | None = None
    """How long an admitted job may be without all its pods. Unset: 30 minutes, or a week where a
    group's chips come by flex-start, since waiting pods are the request for them."""
    recovery_minutes: PositiveInt | None = None
    """How long a running job may be without some of its pods. Unset: an hour, or a week as above."""
    requeueing: Requeueing = Requeueing()


_AS_PULUMI_WRITES_MIDNIGHT = " 00:00:00 +0000 UTC"
"""What Pulumi puts behind a date that stands in the stack file without quotation marks."""


def _as_date(written: object) -> object:
    return written.removesuffix(_AS_PULUMI_WRITES_MIDNIGHT) if isinstance(written, str) else written


Usd = Annotated[Number, Field(gt=0, allow_inf_nan=False)]


class Prices(Spec):
    """What chips cost by contract. List prices stand in `infra/prices.yaml`, each with its source."""

    usd_per_chip_hour: Mapping[str, Usd] = {}
    """By slice group, ahead of the list price. An on-demand group needs one where no list price is
    known; any other group of which none is known has none in the bill."""


class Budget(Spec):
    """What the stack may cost; a plan that breaks it is refused. Chips alone count."""

    usd_per_hour: Usd | None = None
    """Most per hour when all capacity is there that the stack may ask for. The price of every slice
    group must be known."""
    usd_total: Usd | None = None
    """Most that all jobs together may cost while they hold chips. Needs `max_hours` of each: an estimate of
    steps would stop none. A changed job begins to count anew, and slices that stand idle are not in it."""
    expires_on: Annotated[date, BeforeValidator(_as_date)] | None = None
    """Last day on which the stack may be changed, in UTC. Afterwards previews and updates are refused, and
    `destroy` is not."""


class Environment(Spec):
    """Makes the stack an environment, which `multislice env create` does: a copy of another stack with an end.

    A destroy leaves nothing of it, and takes its checkpoint bucket along with all that is in it.
    """

    source: DnsLabel
    """The stack that it was made from."""
    expires_at: Instant
    """Time in UTC, such as 2026-11-21T18:00:00Z. From then on previews and updates are refused, and
    `destroy` is not."""

    @property
    def end(self) -> datetime:
        """When it ends."""
        return datetime.fromisoformat(self.expires_at)

    @property
    def labels(self) -> Mapping[str, str]:
        """By which what it left behind is found in the cloud. Values hold no colons and no capitals."""
        return {"environment-of": self.source, "expires-at": self.expires_at.lower().replace(":", "-")}


class Monitoring(Spec):
    """Metrics in Google Managed Prometheus, alerts on them, and a dashboard for Grafana; see `docs/monitoring.md`."""

    enabled: bool = True
    """Whether the stack declares what is collected, its alerts and the dashboard. The cluster has Managed
    Prometheus either way, and the trainer's hosts answer whoever asks them for metrics."""


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
    """A number of chips, which `infra.settings.rules_cloud` answers with the topology that has them."""
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
