"""A fleet as data: the slices and teams of a cluster, their files and their prices."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from infra.stack.settings.jobs import JobSettings
from infra.stack.settings.schema import Cloud, Datasets, Prices, Scheduling, SliceGroup, Team
from infra.stack.settings.stack import Draft, Settings


@dataclass(frozen=True, kw_only=True)
class FleetSpec:
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

    def groups_of(self, job: JobSettings) -> Mapping[str, SliceGroup]:
        """Return the slice groups that the job may run on, the preferred one first."""
        return {name: self.slices[name] for name in job.slices.groups}

    @property
    def mounted_bucket(self) -> str | None:
        """Return the bucket with training data that pods see as a folder."""
        return self.datasets.bucket if self.datasets and self.datasets.mount else None
