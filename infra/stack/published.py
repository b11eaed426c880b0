"""What a stack publishes for the members of each team: one record in a ConfigMap of the team's namespace.

Members have no access to Pulumi's state. From this record their commands and function calls know the slices, queues,
prices and limits that concern their team. It contains no members, secrets or network settings, and nothing about slice
groups of which the team has no quota. Only the stack writes it (`infra.stack.access`)."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from infra.stack.cost import BILL_OUTPUT, group_bill, stack_bill
from infra.stack.settings.jobs import Functions, PodLevel
from infra.stack.settings.schema import Budget, Cloud, Cluster, Datasets, Prices, Scheduling, SliceGroup, Team
from infra.stack.settings.stack import MIN_HEAD_LIMIT, FleetSpec, Settings
from infra.stack.submission import slice_spec
from workloads.spec import SliceSpec

MAJOR, MINOR = 1, 0
"""Version of the records that this program writes. The minor number rises with each new fact. The major number rises
if programs of the version before would misread a record, for example by a new value such as a kind of capacity."""
_GROUP = ("generation", "topology", "machine_type", "count", "capacity", "zone", "boot_disk_gb", "existing")
_TEAM = ("namespace", "quota", "weight", "preemption", "admission")
_FACTS: dict[str, Any] = {
    "cloud": True,
    "cluster": {"name", "existing"},
    "slices": {"__all__": {*_GROUP}},
    "teams": {"__all__": {*_TEAM}},
    "scheduling": {"placement", "fair_sharing"},
    "prices": True,
    "datasets": True,
    "budget": {"usd_total", "expires_on"},
    "functions": True,
}
"""Settings that are published, by section of the stack file. The others are not the members' concern."""
_UPDATE = "run `git pull` and `pip install .` in the checkout of this program"


class RecordError(ValueError):
    """Raised when a record has a version that this program cannot read, or is damaged."""


class _Versioned(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Annotated[str, Field(pattern=r"^\d+\.\d+$")] = "1.0"
    """Version of the record, MAJOR.MINOR. The default is that of the first records, which did not name it."""

    @property
    def major(self) -> int:
        return int(self.version.partition(".")[0])


class Published(_Versioned):
    """The record of one team. Sections have the names of a stack file, but only the facts that members need. Keys that
    this version does not know are ignored at every level, and those that an older version did not write have defaults.
    """

    stack: str
    team: str
    """Team whose namespace has this record."""
    image: str | None = None
    """Trainer's image by digest, in which functions also run. `None` if the stack has none."""
    bucket: str
    """Name of the checkpoint bucket. It contains the files of jobs and calls in the folders of their teams."""
    cloud: Cloud
    cluster: Cluster
    slices: Mapping[str, SliceGroup]
    """Slice groups of which the team has a quota."""
    teams: Mapping[str, Team]
    """The team, and the others with a quota of the same groups, whose idle chips it may borrow."""
    scheduling: Scheduling = Scheduling()
    prices: Prices = Prices()
    datasets: Datasets | None = None
    budget: Budget | None = None
    functions: Functions = Functions()
    """How function calls run."""
    jobs: tuple[str, ...] = ()
    pod_level: PodLevel = "restricted"
    """Pod Security level of the namespace."""
    host_network: bool = False
    """Whether a job of the stack in this namespace uses the network of its hosts."""
    head_millicores: int = MIN_HEAD_LIMIT.millicores
    head_memory_mib: int = MIN_HEAD_LIMIT.memory_mib
    """CPU and memory that the head of a Pathways job may request in this namespace."""

    @classmethod
    def of(cls, stack: str, settings: Settings, name: str, image: str | None) -> Self:
        """Return the record of the team `name`."""
        groups, head = settings.teams[name].quota, settings.head_limits[name]
        facts = settings.model_dump(mode="json", include=_FACTS)
        for team in facts["teams"].values():
            team["quota"] = {group: share for group, share in team["quota"].items() if group in groups}
        contracts = facts["prices"]["usd_per_chip_hour"].items()
        own: dict[str, Any] = {
            "version": f"{MAJOR}.{MINOR}",
            "stack": stack,
            "team": name,
            "image": image,
            "bucket": settings.checkpoint_bucket,
            "slices": {group: facts["slices"][group] for group in groups},
            "teams": {other: team for other, team in facts["teams"].items() if team["quota"]},
            "prices": {"usd_per_chip_hour": {group: usd for group, usd in contracts if group in groups}},
            "jobs": [job.name for job in settings.jobs.values() if job.team == name],
            "pod_level": settings.pod_levels[name],
            "host_network": name in settings.host_network_teams,
            "head_millicores": head.millicores,
            "head_memory_mib": head.memory_mib,
        }
        return cls.model_validate(facts | own)

    @property
    def text(self) -> str:
        """Return the record as JSON, with nothing but the facts."""
        return self.model_dump_json(indent=1, exclude_unset=True)

    @property
    def sections(self) -> dict[str, Any]:
        """Sections of a stack file with only what is published."""
        return self.model_dump(mode="json", include={*_FACTS}, exclude_unset=True, exclude_none=True)

    @property
    def namespace(self) -> str:
        return self.teams[self.team].namespace

    @property
    def namespaces(self) -> Mapping[str, str]:
        """Namespace of each team. A team's queue has the name of the team."""
        return {name: team.namespace for name, team in self.teams.items()}

    @property
    def fleet(self) -> FleetSpec:
        """Return the fleet that function calls run on."""
        return FleetSpec(
            cloud=self.cloud,
            slices=self.slices,
            teams=self.teams,
            bucket=self.bucket,
            scheduling=self.scheduling,
            datasets=self.datasets,
            prefix=self.cluster.prefix,
        )

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


def parse_record(text: str, where: str) -> Published:
    """Return the record in `text`, which is at `where`.

    Raises:
        RecordError: The record has a newer major version, or is damaged.
    """
    try:
        record = _Versioned.model_validate_json(text)
        if record.major <= MAJOR:
            return Published.model_validate_json(text, extra="ignore")
    except ValidationError:
        raise RecordError(
            f"expected {where} to have the record of a stack, got other data; {_UPDATE}, and if the newest one cannot"
            " read it either, ask the stack's owner to run `multislice up -s STACK --refresh`"
        ) from None
    raise RecordError(
        f"expected a record of version {MAJOR} in {where}, which this program reads, got version {record.version};"
        f" {_UPDATE}"
    )


def join_records(found: Sequence[Published]) -> Published:
    """Return the records of one or more teams of a stack as one, with only these teams."""
    groups = {name: group for record in found for name, group in record.slices.items()}
    teams = {record.team: record.teams[record.team] for record in found}
    return found[0].model_copy(update={"slices": groups, "teams": teams})
