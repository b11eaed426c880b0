"""What a stack publishes for the members of each team: one record in a ConfigMap of the team's namespace.

Members have no access to Pulumi's state. From this record their commands and function calls know the slices, queues,
prices and limits that concern their team. It contains no members, secrets or network settings, and nothing about slice
groups of which the team has no quota. Only the stack writes it (`infra.access`)."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from infra.controllers import Resources
from infra.cost import BILL_OUTPUT, group_bill, stack_bill
from infra.settings.jobs import Functions, PodLevel
from infra.settings.schema import (
    Budget,
    Cloud,
    Cluster,
    Datasets,
    Members,
    Placement,
    Prices,
    Scheduling,
    SliceGroup,
    Team,
)
from infra.settings.stack import Settings
from infra.submission import slice_spec
from workloads.spec import SliceSpec, Spec

_OF_THE_CLUSTER = ("name", "existing")
"""Settings of the cluster that are published. The others are not the members' concern."""
_SECTIONS = (
    "cloud",
    "cluster",
    "slices",
    "teams",
    "scheduling",
    "prices",
    "datasets",
    "budget",
    "functions",
)


class Published(Spec):
    """The record of one team. Sections have the names and the schema of a stack file."""

    stack: str
    team: str
    """Team whose namespace has this record."""
    image: str | None
    """Trainer's image by digest, in which functions also run. `None` if the stack has none."""
    bucket: str
    """Name of the checkpoint bucket. It contains the files of jobs and calls in the folders of their teams."""
    cloud: Cloud
    cluster: Cluster
    slices: Mapping[str, SliceGroup]
    """Slice groups of which the team has a quota."""
    teams: Mapping[str, Team]
    """The team, and the others with a quota of the same groups, whose idle chips it may borrow."""
    scheduling: Scheduling
    prices: Prices
    datasets: Datasets | None
    budget: Budget | None
    functions: Functions
    """How function calls run."""
    jobs: tuple[str, ...]
    """Names of the stack's own jobs in the namespace."""
    pod_level: PodLevel
    """Pod Security level of the namespace."""
    host_network: bool
    """Whether a job of the stack in this namespace uses the network of its hosts."""
    head_millicores: int
    head_memory_mib: int
    """CPU and memory that the head of a Pathways job may request in this namespace."""

    @classmethod
    def of(cls, stack: str, settings: Settings, name: str, image: str | None) -> Self:
        """Return the record of the team `name`."""
        team, head = settings.teams[name], settings.head_limits[name]
        groups = {group: settings.slices[group] for group in team.quota}
        prices = {group: usd for group, usd in settings.prices.usd_per_chip_hour.items() if group in groups}
        budget = settings.budget
        return cls(
            stack=stack,
            team=name,
            image=image,
            bucket=settings.checkpoint_bucket,
            cloud=settings.cloud,
            cluster=Cluster.model_validate(settings.cluster.model_dump(include={*_OF_THE_CLUSTER})),
            slices=groups,
            teams={other: kept for other, each in settings.teams.items() if (kept := _without_members(each, groups))},
            scheduling=settings.scheduling,
            prices=Prices(usd_per_chip_hour=prices),
            datasets=settings.datasets,
            budget=Budget(usd_total=budget.usd_total, expires_on=budget.expires_on) if budget else None,
            functions=settings.functions,
            jobs=tuple(job.name for job in settings.jobs.values() if job.team == name),
            pod_level=settings.pod_levels[name],
            host_network=name in settings.host_network_teams,
            head_millicores=head.millicores,
            head_memory_mib=head.memory_mib,
        )

    @property
    def sections(self) -> dict[str, Any]:
        """Sections of a stack file with only what is published."""
        return self.model_dump(mode="json", include={*_SECTIONS}, exclude_none=True)

    @property
    def namespace(self) -> str:
        return self.teams[self.team].namespace

    @property
    def namespaces(self) -> Mapping[str, str]:
        """Namespace of each team. A team's queue has the name of the team."""
        return {name: team.namespace for name, team in self.teams.items()}

    @property
    def prefix(self) -> str:
        """Prefix of names in an existing cluster, as `Settings.prefix`."""
        return f"{self.cluster.name}-" if self.cluster.existing else ""

    @property
    def placement(self) -> Placement:
        return self.scheduling.placement

    @property
    def mounted_bucket(self) -> str | None:
        """Bucket that the hosts mount as the folder /datasets."""
        return self.datasets.bucket if self.datasets and self.datasets.mount else None

    @property
    def head_limit(self) -> Resources:
        return Resources(self.head_millicores, self.head_memory_mib)

    @property
    def outputs(self) -> dict[str, Any]:
        """Return what the record says of the stack, in the form of the stack's outputs."""
        groups = [group_bill(name, group, self.cloud, self.prices) for name, group in self.slices.items()]
        return {
            "cluster": self.cluster.name,
            "checkpoint_bucket": f"gs://{self.bucket}",
            "queues": {self.team: self.namespace},
            BILL_OUTPUT: stack_bill(groups, existing=self.cluster.existing is not None).model_dump(),
        }

    def slices_of(self, group: str, count: int) -> SliceSpec:
        return slice_spec(self.slices[group].shape, count)


def _without_members(team: Team, groups: Mapping[str, SliceGroup]) -> Team | None:
    """Return the team with its quota of these groups only. `None`: it has none of them."""
    quota = {group: share for group, share in team.quota.items() if group in groups}
    return team.model_copy(update={"quota": quota, "members": Members()}) if quota else None


def join_records(found: Sequence[Published]) -> Published:
    """Return the records of one or more teams of a stack as one, with only these teams."""
    groups = {name: group for record in found for name, group in record.slices.items()}
    teams = {record.team: record.teams[record.team] for record in found}
    return found[0].model_copy(update={"slices": groups, "teams": teams})
