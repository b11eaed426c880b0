"""What a stack needs of a cluster that exists already."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from infra.stack.names import MANAGED, NAMESPACE_LABEL
from infra.stack.pods import node_labels
from infra.stack.settings import schema
from infra.stack.settings.stack import Settings


@dataclass(frozen=True)
class PoolsNeeded:
    """Node pools of a slice group that exist already."""

    count: int
    """Number of pools, one for each slice."""
    hosts: int
    """Nodes of each pool."""
    labels: Mapping[str, str]
    """Labels of the nodes, including the one that names the group."""


@dataclass(frozen=True)
class Needs:
    """Requirements of a stack on an existing cluster."""

    project: str
    cluster: schema.ExistingCluster
    pools: Mapping[str, PoolsNeeded]
    """Slice groups whose node pools exist already."""
    namespaces: Mapping[str, Mapping[str, str]]
    """Labels of each team's namespace."""
    placement: schema.Placement
    fair_sharing: bool
    queued: bool
    """Whether Kueue requests chips from GKE."""
    mounts: bool
    """Whether pods mount a bucket as a folder."""
    monitored: bool
    """Whether the stack declares objects for Managed Prometheus."""
    secrets: bool
    """Whether jobs have secrets."""
    groups: bool
    """Whether teams have Google groups as members."""

    @classmethod
    def of(cls, settings: Settings, cluster: schema.ExistingCluster) -> Self:
        """Return the requirements of a stack file."""
        return cls(
            project=settings.cloud.project,
            cluster=cluster,
            pools={
                name: PoolsNeeded(group.count, group.shape.hosts, node_labels(name, group))
                for name, group in settings.slices.items()
                if group.existing
            },
            namespaces={
                team.namespace: {**MANAGED, NAMESPACE_LABEL: team.namespace} for team in settings.teams.values()
            },
            placement=settings.scheduling.placement,
            fair_sharing=settings.scheduling.fair_sharing,
            queued=any(group.capacity.queued for group in settings.slices.values()),
            mounts=settings.mounted_bucket is not None,
            monitored=settings.monitoring.enabled,
            secrets=bool(settings.secrets),
            groups=any(team.members.groups for team in settings.teams.values()),
        )
