"""A whole stack file: the draft that the rules check, and the `Settings` that the rest of the program uses."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, get_args

from pydantic import InstanceOf

from infra.stack.controllers import Resources
from infra.stack.names import MANAGED_BY, ON_HOSTS, team_folder
from infra.stack.settings.errors import FieldError, nearest
from infra.stack.settings.jobs import (
    AnyJob,
    ContainerJob,
    Functions,
    JobSettings,
    Pathways,
    PodLevel,
    Section,
    TrainingJob,
)
from infra.stack.settings.schema import (
    Budget,
    Cloud,
    Cluster,
    Datasets,
    Image,
    Monitoring,
    Network,
    Options,
    Prices,
    Scheduling,
    SliceGroup,
    Team,
)
from infra.stack.settings.values import Hidden
from infra.stack.tpu import SliceShape

type Shapes = Mapping[str, SliceShape]
"""Shapes of the slice groups that GKE offers, by group."""

MIN_HEAD_LIMIT = Resources(millicores=4000, memory_mib=16 * 1024)
"""Default size of a head, sufficient for a program that only starts work on the hosts of slices."""


@dataclass(frozen=True)
class DraftJob:
    """A job of a stack file."""

    path: str
    """Path of its section: `jobs.NAME`, or `job` in the short form."""
    written: Section
    job: AnyJob | None
    """The job. `None` if it could not be read."""


@dataclass(frozen=True)
class Draft:
    """The sections of a stack file. Sections that could not be read are `None` or missing."""

    cloud: Cloud | None = None
    cluster: Cluster | None = None
    slices: Mapping[str, SliceGroup] = field(default_factory=dict[str, SliceGroup])
    """Valid sections."""
    written_slices: Mapping[str, Section] = field(default_factory=dict[str, Section])
    """Names of all sections, so that a job may refer to a group that has an error."""
    teams: Mapping[str, Team] = field(default_factory=dict[str, Team])
    written_teams: Mapping[str, Section] = field(default_factory=dict[str, Section])
    jobs: tuple[DraftJob, ...] = ()
    datasets: Datasets | None = None
    network: Network = Network()
    scheduling: Scheduling = Scheduling()
    prices: Prices = Prices()
    budget: Budget | None = None
    functions: Functions = Functions()
    secrets: tuple[str, ...] = ()
    """Names of the stack file's secrets."""

    @property
    def readable_jobs(self) -> Iterator[tuple[str, AnyJob]]:
        """Return the jobs that could be read, each with the path of its section."""
        return ((entry.path, entry.job) for entry in self.jobs if entry.job)


def join_names(names: Iterable[str]) -> str:
    """Return the names as text for an error."""
    return ", ".join(sorted(names)) or "(none)"


def check_name(path: str, kind: str, name: str, known: Collection[str], fix: str) -> Iterator[FieldError]:
    """Yield the error of a name that is not among the `known` ones of this kind, unless none is known."""
    if known and name not in known:
        yield FieldError(path, f"{kind} {join_names(known)}", repr(name), fix, nearest(name, known))


def written_folders(
    teams: Mapping[str, Team], folders: Mapping[str, Sequence[str]], host_network_teams: Collection[str]
) -> Mapping[str, Sequence[str]]:
    """Return the folders of the checkpoint bucket that pods write to, by namespace, and by `ON_HOSTS` for host
    networks. Each team has one of its own, and `folders` by team."""
    written = {name: [team_folder(team.namespace), *folders.get(name, ())] for name, team in teams.items()}
    by_namespace = {teams[name].namespace: own for name, own in written.items()}
    on_hosts = [folder for name in sorted(host_network_teams) for folder in written[name]]
    return by_namespace | ({ON_HOSTS: on_hosts} if on_hosts else {})


class _Sections:
    if TYPE_CHECKING:
        slices: Mapping[str, SliceGroup]
        datasets: Datasets | None

    @property
    def mounted_bucket(self) -> str | None:
        """Return the bucket with training data that pods see as a folder."""
        return self.datasets.bucket if self.datasets and self.datasets.mount else None

    def groups_of(self, job: JobSettings) -> Mapping[str, SliceGroup]:
        """Return the slice groups that the job may run on, the preferred one first."""
        return {name: self.slices[name] for name in job.slices.groups}


class Settings(_Sections, Options):
    """A whole valid stack file, as `infra.stack.settings.read` returns it."""

    cloud: Cloud
    cluster: Cluster
    slices: Mapping[str, SliceGroup]
    teams: Mapping[str, Team]
    image: Image | None = None
    """The trainer's image, in which functions also run. Not needed by a stack without jobs, or with container jobs
    only."""
    jobs: Mapping[str, TrainingJob | ContainerJob]
    """Jobs by name. A single training job may be written as `job` instead, a mapping with the same keys and its `name`.
    `{}` defines a stack without jobs: a cluster with queues, to which others submit."""
    datasets: Datasets | None = None
    network: Network = Network()
    scheduling: Scheduling = Scheduling()
    prices: Prices = Prices()
    budget: Budget | None = None
    monitoring: Monitoring = Monitoring()
    functions: Functions = Functions()
    secrets: Mapping[str, InstanceOf[Hidden]] = {}
    """Environment variables of the jobs' pods, by name, for tokens of a data hub or an experiment tracker. Set them
    with `pulumi config set --secret --path 'tpu-multislice:secrets.NAME'`. No other section may contain a secret. A
    changed value reaches pods that start later; an added or removed name replaces the job. See
    `docs/how-to/backends.md`."""

    @property
    def checkpoint_bucket(self) -> str:
        """Return the name of the bucket. Bucket names are unique in all of Google Cloud."""
        return f"{self.cloud.project}-{self.cluster.name}-checkpoints"

    @property
    def prefix(self) -> str:
        """Return the prefix of the cluster's names."""
        return self.cluster.prefix

    @property
    def written_folders(self) -> Mapping[str, Sequence[str]]:
        """Return the folders of the checkpoint bucket that pods write to, as `written_folders` does."""
        return written_folders(self.teams, self.job_folders, self.host_network_teams)

    @property
    def job_folders(self) -> Mapping[str, Sequence[str]]:
        """Return the folders of the jobs of each team."""
        return {team: [name for name, job in self.jobs.items() if job.team == team] for team in self.teams}

    @property
    def resource_labels(self) -> Mapping[str, str]:
        """Return the labels of all billed resources. Never empty, because GKE ignores the removal of a pool's last
        label."""
        return {**MANAGED_BY, **self.labels}

    @property
    def second_network(self) -> bool:
        """Return whether hosts of any slice group use their second network interface."""
        return any(group.second_network for group in self.slices.values())

    @property
    def dataset_bucket(self) -> str | None:
        return self.datasets.bucket if self.datasets else None

    @property
    def training_jobs(self) -> Mapping[str, TrainingJob]:
        return {name: job for name, job in self.jobs.items() if isinstance(job, TrainingJob)}

    @property
    def recorded_jobs(self) -> list[str]:
        """Return the names of the jobs that write the files of a report."""
        return [name for name, job in self.jobs.items() if job.records]

    @property
    def host_network_teams(self) -> frozenset[str]:
        """Return the teams with a job whose pods use the network of their host."""
        return frozenset(job.team for job in self.jobs.values() if job.host_network)

    @property
    def pod_levels(self) -> Mapping[str, PodLevel]:
        """Return the Pod Security level of each team's namespace: the strictest that admits the pods of all its jobs
        and of functions."""
        strictest_last = get_args(PodLevel)[::-1]
        needed = {(job.team, job.pod_level) for job in self.jobs.values()} | {
            (name, self.functions.pod_level) for name in self.teams
        }
        return {name: next(level for level in strictest_last if (name, level) in needed) for name in self.teams}

    @property
    def head_limits(self) -> Mapping[str, Resources]:
        """Return the largest requests of a pod without chips, by team: the size of the largest head of its Pathways
        jobs and calls."""
        of_calls = self.functions.pathways
        heads = {name: [MIN_HEAD_LIMIT, *([_head_size(of_calls)] if of_calls else [])] for name in self.teams}
        for job in self.jobs.values():
            if job.pathways:
                heads[job.team].append(_head_size(job.pathways))
        return {
            name: Resources(max(each.millicores for each in sizes), max(each.memory_mib for each in sizes))
            for name, sizes in heads.items()
        }

    def team_of(self, job: JobSettings) -> Team:
        return self.teams[job.team]

    def group_of(self, job: JobSettings) -> SliceGroup:
        """Return the job's first slice group; the groups that it may fall back to have equal slices."""
        return self.slices[job.slices.group]

    def secrets_of(self, job: JobSettings) -> tuple[str, ...]:
        """Return the names of the secrets that the job's pods get."""
        return tuple(sorted(self.secrets if job.secrets is None else set(job.secrets)))


def _head_size(runtime: Pathways) -> Resources:
    return Resources(1000 * runtime.head_vcpus, 1024 * runtime.head_memory_gib)


@dataclass(frozen=True, kw_only=True)
class FleetSpec(_Sections):
    """What a `Fleet` declares, and what all that runs on it needs to know: jobs of the same program or of another one,
    submitted jobs, and function calls."""

    cloud: Cloud
    """Project, region and zone of the cluster."""
    slices: Mapping[str, SliceGroup]
    """Slice groups by name."""
    teams: Mapping[str, Team]
    """Teams by name. A job needs only its own team."""
    bucket: str
    """Name of the checkpoint bucket, in the region of the slices."""
    scheduling: Scheduling = Scheduling()
    """Settings of all queues. Jobs need only `placement`."""
    prices: Prices = Prices()
    """Contract prices. Default: list prices."""
    datasets: Datasets | None = None
    """Bucket with training data, which trainers may read. Default: none."""
    prefix: str = ""
    """Prefix of the names that every stack would give alike, such as `research-`, in a cluster that others use too.
    Default: none, as in a stack's own cluster."""
    restarts_slices: bool = False
    """Whether JobSet can restart one slice and leave the others, by its feature gate RestartJob. Default: no."""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the fleet of a stack file."""
        return cls(
            cloud=settings.cloud,
            slices=settings.slices,
            teams=settings.teams,
            bucket=settings.checkpoint_bucket,
            scheduling=settings.scheduling,
            prices=settings.prices,
            datasets=settings.datasets,
            prefix=settings.prefix,
            restarts_slices=settings.cluster.installs_jobset,
        )

    def draft(self, **others: Any) -> Draft:
        """Return its sections as those of a stack file, which the rules check, with other fields of the draft."""
        return Draft(
            cloud=self.cloud,
            slices=self.slices,
            written_slices={name: group.model_dump() for name, group in self.slices.items()},
            teams=self.teams,
            written_teams={name: team.model_dump() for name, team in self.teams.items()},
            datasets=self.datasets,
            scheduling=self.scheduling,
            prices=self.prices,
            **others,
        )
