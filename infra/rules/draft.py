"""What could be read of a stack file, for the rules to judge.

Owns nothing else: a rule takes a draft and yields the faults that it finds.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from infra.accelerators import SliceShape
from infra.addresses import Network
from infra.environment import Environment
from infra.jobs import AnyJob
from infra.scheduling import Scheduling
from infra.spending import Budget, Prices
from infra.stack_file import Cloud, Cluster, Datasets, SliceGroup, Team

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
