"""A whole stack file, once read, and the draft of one that the rules judge."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from pydantic import InstanceOf

from infra import names
from infra.controllers import Resources
from infra.settings.jobs import AnyJob, ContainerJob, Job, PodLevel, TrainingJob
from infra.settings.schema import (
    Budget,
    Cloud,
    Cluster,
    Datasets,
    Environment,
    Image,
    Monitoring,
    Network,
    Options,
    Prices,
    Scheduling,
    SliceGroup,
    Team,
)
from infra.settings.values import (
    Hidden,
)
from infra.tpu import SliceShape

_LEAST_HEAD_LIMIT = Resources(millicores=4000, memory_mib=16 * 1024)
"""Enough for a program that only starts work on the hosts of slices."""


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
        teams = {name: [names.team_folder(team.namespace)] for name, team in self.teams.items()}
        for name, job in self.jobs.items():
            teams[job.team].append(name)
        by_namespace = {self.teams[name].namespace: written for name, written in teams.items()}
        on_hosts = [folder for name in sorted(self.host_network_teams) for folder in teams[name]]
        return by_namespace | ({names.ON_HOSTS: on_hosts} if on_hosts else {})

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


type Written = Mapping[str, object]
"""A section as it stands in the file, whatever is wrong with it."""


@dataclass(frozen=True)
class DraftJob:
    """One of the jobs."""

    path: str
    """Of its section: `jobs.NAME`, or `job` in the short form."""
    written: Written
    job: AnyJob | None
    """None: it could not be read."""


@dataclass(frozen=True)
class Draft:
    """The sections; those that could not be read are None or missing."""

    cloud: Cloud | None
    cluster: Cluster | None
    slices: Mapping[str, SliceGroup]
    """The valid ones."""
    written_slices: Mapping[str, Written]
    """All, as they are written, so that a job may name a group that has a fault of its own."""
    teams: Mapping[str, Team]
    written_teams: Mapping[str, Written]
    jobs: tuple[DraftJob, ...]
    datasets: Datasets | None
    network: Network
    scheduling: Scheduling
    prices: Prices
    budget: Budget | None
    environment: Environment | None
    secrets: tuple[str, ...]
    """Names of the secrets that the stack file has."""

    @property
    def readable_jobs(self) -> Iterator[tuple[str, AnyJob]]:
        """The jobs that could be read, each with the path of its section."""
        return ((entry.path, entry.job) for entry in self.jobs if entry.job)


type Shapes = Mapping[str, SliceShape]
"""Shapes of the slice groups that GKE offers, by group."""


def listed(names: Iterable[str]) -> str:
    """Names for a fault's text."""
    return ", ".join(sorted(names)) or "(there are none)"
