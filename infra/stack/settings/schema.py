"""The sections of a stack file, one class for each section below `config`. Rules between them are in `rules_*`."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated, Literal, Self, cast

from pydantic import BeforeValidator, Field, model_validator

from infra.stack.capacity import Capacity
from infra.stack.settings.values import (
    MOST_INT32,
    BillingAccount,
    BucketName,
    Cidr,
    ClusterName,
    CpuMachine,
    DiskImage,
    DnsLabel,
    Email,
    ExistingClusterName,
    Instant,
    KmsKey,
    Labels,
    PinnedImage,
    ProjectName,
    Recurrence,
    Region,
    SecurityGroup,
)
from infra.stack.tpu import SliceShape, interpret, resolve
from workloads.spec import MAX_SLICES, NUMBER, Flag, Number, PositiveInt, Spec, WholeNumber

DATASETS_FOLDER = "/datasets"
"""Folder at which pods see the mounted bucket."""
SLICE_PODS_PER_NODE, SYSTEM_PODS_PER_NODE = 32, 110
"""Maximum number of pods per node. Slices run one trainer and GKE's own pods. The default of 110 would take four times
as many addresses."""
_MIDNIGHT_OF_PULUMI = " 00:00:00 +0000 UTC"
"""Suffix that Pulumi adds to a date without quotation marks in the stack file."""

Chips = Annotated[WholeNumber, Field(ge=0)]
Controller = Literal["found", "install"]
Placement = Literal["exclusive-topology", "topology-aware"]
Usd = Annotated[Number, Field(gt=0, allow_inf_nan=False)]


class Cloud(Spec):
    """Location of the stack. A change of any of these values needs a new cluster: destroy, then up."""

    project: ProjectName
    region: Region
    zone: str
    """Zone of the system nodes, and of every slice group without its own zone."""


class ExistingNetwork(Spec):
    """A VPC and a subnet that exist already. They need Private Google Access, and Cloud NAT for images of JobSet and
    Kueue."""

    project: ProjectName | None = None
    """Project of the network. Another project than `cloud.project` is the host project of a Shared VPC. Default:
    `cloud.project`."""
    network: DnsLabel
    """Name of the VPC."""
    subnet: DnsLabel
    """Name of the subnet of the nodes, in `cloud.region`."""
    pods: DnsLabel
    """Name of the subnet's secondary range for pods."""
    services: DnsLabel
    """Name of the subnet's secondary range for Services."""


class Network(Spec):
    """Address ranges of the VPC that the stack creates, or an existing VPC. Ranges must not overlap with those of
    peered networks."""

    existing: ExistingNetwork | None = None
    """Existing VPC in which the cluster is created. Default: the stack creates a VPC."""

    nodes: Cidr = "10.0.0.0/18"
    """Address range of nodes, one address each. It can be widened in place; any other change needs a new cluster."""
    pods: Cidr = "10.16.0.0/12"
    """Address range of pods. GKE gives each node twice as many as its maximum number of pods. A change needs a new
    cluster."""
    services: Cidr = "10.1.0.0/20"
    """Address range of Services within the cluster. A change needs a new cluster."""
    second_nodes: Cidr = "10.2.0.0/18"
    """Address range of nodes in slice groups with `second_network`, one address each. Unused without such a group."""


class MaintenanceWindow(Spec):
    """A recurring time window in which GKE may maintain the cluster."""

    start: Instant
    """Start of the first window, such as 2026-01-03T02:00:00Z."""
    end: Instant
    """End of the first window. At least 48 hours in 32 days must be open to maintenance."""
    recurrence: Recurrence
    """Recurrence as defined in RFC 5545, such as FREQ=WEEKLY;BYDAY=SA,SU."""

    @model_validator(mode="after")
    def _ends_after_it_starts(self) -> Self:
        if self.end <= self.start:
            raise ValueError("a window that ends after it starts")
        return self


class ExistingCluster(Spec):
    """A GKE Standard cluster that exists already. The stack adds node pools, queues and jobs, and a destroy leaves
    everything else as it was. See `docs/how-to/existing-cluster.md`."""

    name: ExistingClusterName
    """Name of the cluster, in `cloud.project`."""
    location: str
    """Region or zone of the cluster, in `cloud.region`."""
    jobset: Controller = "found"
    """`found`: JobSet is in the cluster. `install`: the stack installs it."""
    kueue: Controller = "found"
    """`found`: Kueue is in the cluster and keeps its configuration. `install`: the stack installs it."""


class Cluster(Spec):
    """The GKE cluster and the small node pool for its controllers, or an existing cluster."""

    name: ClusterName
    """Name of the cluster, and prefix of all other names in the project. With `existing` only the prefix, also of
    names in the cluster. A change needs a new cluster."""
    existing: ExistingCluster | None = None
    """Existing cluster, to which only `name` may be added. Default: the stack creates a cluster."""
    release_channel: Literal["RAPID", "REGULAR", "STABLE"] = "REGULAR"
    deletion_protection: Flag = True
    """Whether GKE refuses to delete the cluster. Before `destroy`, set this to false and run `up`."""
    system_machine_type: CpuMachine = "e2-standard-4"
    """Machine type of the CPU nodes that run JobSet, Kueue and GKE's own pods. The requests of JobSet and Kueue grow
    with the number of TPU hosts and may take half of a machine."""
    system_nodes: PositiveInt = 1
    authorized_networks: Mapping[str, Cidr] = {}
    """Networks, by name, that may reach the control plane's IP endpoint. Default: none. Then there is no such endpoint,
    and the only access is the DNS endpoint, which requires a Google identity."""
    security_group: SecurityGroup | None = None
    """Google group that contains the groups of all teams, `gke-security-groups@DOMAIN`
    (https://cloud.google.com/kubernetes-engine/docs/how-to/google-groups-rbac). Default: GKE uses no groups.
    Removing it here leaves it on the cluster."""
    encryption_key: KmsKey | None = None
    """Full name of the Cloud KMS key that encrypts the cluster's Secrets. It must be in `cloud.region`, and GKE's
    service account must have access to it (https://cloud.google.com/kubernetes-engine/docs/how-to/encrypting-secrets).
    Required if jobs have secrets. Default: Google's key."""
    maintenance: MaintenanceWindow | None = None
    """Window in which GKE may maintain control plane and system nodes. TPU nodes are never maintained. Default: any
    time."""

    @property
    def prefix(self) -> str:
        """Return the prefix of names in the cluster that every stack would give alike. Empty in the stack's own
        cluster."""
        return f"{self.name}-" if self.existing else ""

    @property
    def installs_jobset(self) -> bool:
        """Return whether JobSet has the configuration of this program."""
        return self.existing is None or self.existing.jobset == "install"


class SliceGroup(Spec):
    """A group of equal TPU slices. A change of anything but `count` replaces every slice of the group."""

    generation: str
    topology: str
    """Topology of a slice, such as 4x4, or Cloud TPU's name of the slice, such as v6e-16."""
    machine_type: str | None = None
    """Machine type of the hosts. Default: that of the topology's multi-host slice, or its only machine type."""
    count: Annotated[PositiveInt, Field(le=MAX_SLICES)]
    """Number of slices. Each slice is a node pool."""
    capacity: Capacity
    """Source of the chips: `on-demand`, `spot`, or a mapping with `kind` and the settings of a class of
    `infra.stack.capacity`."""
    zone: str | None = None
    """Zone of all slices of the group, in `cloud.region`. A reservation must be in the same zone. Groups in different
    zones let a job fall back from one zone to another (`slices.fallback` of the job). Default: `cloud.zone`."""
    boot_disk_gb: Annotated[WholeNumber, Field(ge=50)] = 100
    """Size of the boot disk in GB. Images, logs and files that pods write to their own file system must fit."""
    image_disk: DiskImage | None = None
    """Disk image that contains the trainer's image, so that nodes need not pull it
    (https://cloud.google.com/kubernetes-engine/docs/how-to/data-container-image-preloading). Default: none."""
    second_network: Flag = False
    """Whether hosts use their second network interface, on a separate network. It benefits only pods of a job with
    `host_network`. Not with an existing network or cluster."""
    existing: Flag = False
    """Whether the node pools exist already in an existing cluster: `count` pools, one for each slice, whose nodes have
    the label `slice-group` with the name of the group. The stack creates none and deletes none."""

    @model_validator(mode="before")
    @classmethod
    def _in_the_terms_of_gke(cls, written: object) -> object:
        """Replace other names of generation and topology, such as `trillium`, `v6e-16` or `2X4`."""
        if not isinstance(written, Mapping):
            return written
        section = cast(Mapping[str, object], written)
        generation, topology = section.get("generation"), section.get("topology", "")
        if not isinstance(generation, str) or not isinstance(topology, str | int) or isinstance(topology, bool):
            return section
        generation, topology = interpret(generation, str(topology))
        return {**section, "generation": generation, **({"topology": topology} if topology else {})}

    @property
    def shape(self) -> SliceShape:
        return resolve(self.generation, self.topology, self.machine_type)

    @property
    def hosts(self) -> int:
        """Return the number of hosts of all its slices."""
        return self.count * self.shape.hosts

    @property
    def chips(self) -> int:
        """Return the number of chips of all its slices."""
        return self.count * self.shape.chips

    def zone_in(self, cloud: Cloud) -> str:
        return self.zone or cloud.zone


class Quota(Spec):
    """A team's share of one slice group. It may be written as a plain number of chips."""

    chips: Chips
    """Number of chips that belong to the team (Kueue's nominal quota). With 0 the team can only borrow idle chips."""
    borrowing_limit: Chips | None = None
    """Maximum number of other teams' chips that it may use while they are idle. Default: all."""
    lending_limit: Chips | None = None
    """Maximum number of its own chips that other teams may use while they are idle. Default: all."""


def _as_quota(written: object) -> object:
    return written if isinstance(written, Mapping | Quota) else {"chips": written}


TeamQuota = Annotated[Quota, BeforeValidator(_as_quota, json_schema_input_type=Chips | Quota)]


class Preemption(Spec):
    """Which running jobs a team's waiting job may preempt."""

    within_team: Literal["never", "lower-priority", "lower-or-newer-equal-priority"] = "lower-priority"
    """Jobs of the same team that it may preempt."""
    reclaim: Literal["never", "lower-priority", "any"] = "any"
    """Jobs of other teams on chips lent by this team that it may preempt."""
    while_borrowing: Literal["never", "lower-priority"] = "never"
    """Jobs of other teams on their own chips that it may preempt if it would borrow those chips. Not with fair
    sharing."""


class Members(Spec):
    """Users who may submit, see, suspend and delete the jobs of a team, and nothing else. See
    `docs/explanation/security.md`."""

    users: tuple[Email, ...] = ()
    """Email addresses of Google accounts, of people or service accounts."""
    groups: tuple[Email, ...] = ()
    """Google groups. Each must be a member of `cluster.security_group`."""


class Team(Spec):
    """People who share a namespace, a queue and a quota."""

    namespace: DnsLabel
    quota: Annotated[Mapping[str, TeamQuota], Field(min_length=1)]
    """Number of chips by slice group. The team cannot use a group that is not listed."""
    weight: Annotated[float, Field(gt=0, multiple_of=0.001), NUMBER] | None = None
    """Weight of the team's share of idle chips under fair sharing, relative to the other teams' weights. Default: 1."""
    preemption: Preemption = Preemption()
    members: Members = Members()
    """Users with access to the team's namespace. Default: only administrators of the cluster."""
    admission: Literal["open", "hold", "drain"] = "open"
    """Whether jobs start. `hold`: no new job starts. `drain`: running jobs are also stopped, and wait."""


class Requeueing(Spec):
    """Retries of a job whose pods did not start in time."""

    limit: Annotated[WholeNumber, Field(ge=0, le=MOST_INT32)] | None = None
    """Number of retries, after which the workload is deactivated until someone activates it. Default: no limit."""
    base_seconds: Annotated[PositiveInt, Field(le=MOST_INT32)] = 60
    """Pause before the first retry. It doubles with each retry."""
    max_seconds: Annotated[PositiveInt, Field(le=MOST_INT32)] = 3600
    """Longest pause."""


class Scheduling(Spec):
    """Settings of all queues."""

    placement: Placement = "exclusive-topology"
    """What keeps a slice of a job in one node pool: JobSet's exclusive topology, or Kueue's topology-aware scheduling,
    which also counts the free hosts before it admits a job. A change is refused while jobs run, because Kueue would
    forget their chips: let them end or drain the teams."""
    fair_sharing: Flag = False
    """Whether idle chips go to the team that uses the smallest share for its weight, not to the team that asks
    first."""
    ready_minutes: PositiveInt | None = None
    """Minutes that an admitted job may wait for all its pods. Default: 30, or a week if a group's chips come by
    flex-start, because waiting pods are the request for them."""
    recovery_minutes: PositiveInt | None = None
    """Minutes that a running job may lack some of its pods. Default: 60, or a week in the same case."""
    requeueing: Requeueing = Requeueing()


class Image(Spec):
    """The trainer's image: an image from a registry, or one that `up` builds."""

    reference: PinnedImage | None = None
    """Image by digest. Use it for long jobs, because a changed source file does not change it."""
    build: Literal[True] | None = None
    """Whether to build `workloads` with the local Docker daemon and push it. A changed source file replaces the job.
    Docker must be logged in: `gcloud auth configure-docker REGION-docker.pkg.dev`."""

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.reference is None) == (self.build is None):
            raise ValueError("either reference (an image by digest) or build: true")
        return self


class Datasets(Spec):
    """Location of training data that is not in the image."""

    bucket: BucketName
    """An existing bucket. It is not part of the stack, because data outlives a cluster and serves several. The trainers
    of all teams may read it."""
    mount: Flag = False
    """Whether pods see the bucket as the folder `/datasets`, read-only, through Cloud Storage FUSE."""


class Prices(Spec):
    """Contract prices of chips. List prices and their sources are in `infra/stack/prices.yaml`."""

    usd_per_chip_hour: Mapping[str, Usd] = {}
    """US dollars per chip-hour by slice group. They replace list prices. Required for an on-demand group without a
    known list price. Any other group without a price is listed without one in the bill."""


def _as_date(written: object) -> object:
    return written.removesuffix(_MIDNIGHT_OF_PULUMI) if isinstance(written, str) else written


class BudgetAlerts(Spec):
    """A budget of Cloud Billing, which sends emails and stops nothing. It counts everything that is billed in
    `cloud.project`, also by other stacks."""

    billing_account: BillingAccount
    """Cloud Billing account that pays for the project. Whoever runs `up` needs `roles/billing.costsManager` on it."""
    usd_per_month: PositiveInt
    """US dollars per calendar month. The currency of the account must be USD."""
    at_percent: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (50, 90, 100)
    """Percentages of `usd_per_month` at which an alert is sent. Another one is sent when the forecast for the month
    reaches 100 %."""
    emails: Annotated[tuple[Email, ...], Field(max_length=5)] = ()
    """Addresses to alert, at most 5. Default: the billing administrators and users of the account."""


class Budget(Spec):
    """Maximum cost of the stack. A plan that costs more is refused. Only chips count."""

    usd_per_hour: Usd | None = None
    """Maximum US dollars per hour when all capacity that the stack may request exists. The price of every slice group
    must be known. Default: no limit."""
    usd_total: Usd | None = None
    """Maximum US dollars that all jobs together may cost while they hold chips. Each job needs `max_hours`, because an
    estimate of its steps would not stop it. A changed job counts from zero again. Idle slices do not count.
    `multislice enforce-budget` counts what the jobs of all teams have used, also after they were deleted, and stops
    them when it is this much. Default: no limit."""
    expires_on: Annotated[date, BeforeValidator(_as_date)] | None = None
    """Last day on which the stack may be changed, in UTC. After that day previews and updates are refused, but not
    `destroy`. Default: none."""
    alerts: BudgetAlerts | None = None
    """Alerts of Cloud Billing about all costs of the project. Default: none."""


class Monitoring(Spec):
    """Metrics in Google Managed Prometheus, alerts on them, and a Grafana dashboard; see
    `docs/how-to/monitoring.md`."""

    enabled: Flag = True
    """Whether the stack declares collection, alerts and dashboard. Without it the cluster still has Managed Prometheus,
    and the trainer's hosts still serve their metrics."""


class Options(Spec):
    """Settings of the whole stack."""

    labels: Labels = {}
    """Labels of cluster, nodes and buckets, for billing reports."""
    allow_interruption: Flag = False
    """Whether a change or destroy may remove what running jobs need, such as their slices or their namespace."""
