"""Queues and namespaces of the teams.

Owns the order in which the objects of `infra.flavors` come and go: a ClusterQueue needs its
flavors and admission checks, a check its configuration, a LocalQueue its ClusterQueue. Removed in
reverse, nothing is held by a finalizer, for Kueue is still there to lift it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes

from infra import flavors
from infra.capacity import Queued
from infra.kubernetes_objects import KubernetesObject
from infra.pods import SERVICE_ACCOUNT
from infra.stack_file import SliceGroup, Team


@dataclass(frozen=True)
class QueuesArgs:
    """The slice groups and teams of a stack."""

    groups: Mapping[str, SliceGroup]
    teams: Mapping[str, Team]


class Queues(pulumi.ComponentResource):
    """Flavors and priorities for all, and for each team a namespace with its queue and service account."""

    def __init__(self, name: str, args: QueuesArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tpu-multislice:infra:Queues", name, None, opts)
        for priority, value in flavors.PRIORITIES.items():
            self._declare(f"priority-{priority}", flavors.priority_class(priority, value), [])
        declared = [
            self._declare(f"flavor-{group_name}", flavors.resource_flavor(group_name, group), [])
            for group_name, group in args.groups.items()
        ]
        queued = [group_name for group_name, group in args.groups.items() if isinstance(group.capacity, Queued)]
        declared += [self._check(group_name, args.groups[group_name]) for group_name in queued]
        for team_name, team in args.teams.items():
            self._team(team_name, team, queued, declared)
        self.register_outputs({})

    def _check(self, group_name: str, group: SliceGroup) -> KubernetesObject:
        configuration = self._declare(f"provisioning-{group_name}", flavors.provisioning(group_name, group), [])
        return self._declare(f"check-{group_name}", flavors.admission_check(group_name), [configuration])

    def _team(self, name: str, team: Team, queued: list[str], needed: list[KubernetesObject]) -> None:
        namespace = kubernetes.core.v1.Namespace(
            f"namespace-{name}",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(name=team.namespace),
            opts=pulumi.ResourceOptions(parent=self),
        )
        kubernetes.core.v1.ServiceAccount(
            f"trainer-{name}",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(name=SERVICE_ACCOUNT, namespace=team.namespace),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[namespace]),
        )
        queue = self._declare(f"quota-{name}", flavors.cluster_queue(name, team, queued), needed)
        self._declare(f"queue-{name}", flavors.local_queue(name, team), [queue, namespace])

    def _declare(
        self, name: str, manifest: flavors.Manifest, after: list[KubernetesObject] | list[pulumi.Resource]
    ) -> KubernetesObject:
        return KubernetesObject(name, manifest, pulumi.ResourceOptions(parent=self, depends_on=list(after)))
