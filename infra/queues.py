"""Queues and namespaces of the teams.

Owns the order in which the objects of `infra.flavors` and `infra.cluster_queues` come and go: a
ClusterQueue needs its cohort, flavors and admission checks, a check its configuration, a flavor its
topology. A team's namespace needs the ClusterQueue: whatever still runs in it, also by hand, ends
with the namespace, before Kueue is asked to let go of the queue. It takes jobs and lets members in
once its borders stand. Removed in reverse, nothing is
held by a finalizer, for Kueue is still there to lift it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes

from infra import access, admission_policies, cluster_queues, flavors, names, network_policy, quarantine
from infra.capacity import Queued
from infra.controllers import Resources
from infra.kubernetes_objects import KubernetesObject, owned
from infra.names import OURS, SERVICE_ACCOUNT
from infra.pods import admitted_pods
from infra.settings.jobs import PodLevel
from infra.settings.schema import Network, Placement, SliceGroup, Team


@dataclass(frozen=True)
class QueuesArgs:
    """The slice groups and teams of a stack."""

    groups: Mapping[str, SliceGroup]
    teams: Mapping[str, Team]
    placement: Placement
    host_network_teams: frozenset[str]
    """The teams whose pods may use the network of their host."""
    pod_levels: Mapping[str, PodLevel]
    """What each team's namespace admits."""
    head_limits: Mapping[str, Resources]
    """What a pod without chips of each team may request."""
    network: Network
    """Addresses of the cluster, of which pods reach those that they need."""
    monitored: bool
    """Whether collectors of metrics reach the pods."""
    hooks: pulumi.ResourceHookBinding
    """Of every object that others may hold."""


class Queues(pulumi.ComponentResource):
    """Flavors and priorities for all, and for each team a namespace with its queue, members and borders."""

    def __init__(self, name: str, args: QueuesArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tpu-multislice:infra:Queues", name, None, opts)
        self._hooks = args.hooks
        for priority, value in cluster_queues.PRIORITIES.items():
            self._declare(f"priority-{priority}", cluster_queues.priority_class(priority, value), [])
        needed = [*self._flavors(args), self._declare("cohort", cluster_queues.cohort(), [])]
        needed += [
            self._check(group_name, group)
            for group_name, group in args.groups.items()
            if isinstance(group.capacity, Queued)
        ]
        needed += self._admission(args)
        for team_name in args.teams:
            self._team(team_name, args, needed)
        self.register_outputs({})

    def _admission(self, args: QueuesArgs) -> list[KubernetesObject]:
        marks = {f"bad-host-{name}": manifest for name, manifest in quarantine.objects(args.teams).items()}
        declared: list[KubernetesObject] = []
        # In their order: the role is given to nobody before the policies narrow it.
        policies = admission_policies.of_teams(args.teams, args.host_network_teams, args.head_limits)
        for name, manifest in {**policies, **marks}.items():
            declared.append(self._declare(name, manifest, declared[-1:]))
        return declared

    def _flavors(self, args: QueuesArgs) -> list[KubernetesObject]:
        topology_aware = args.placement == "topology-aware"
        topologies = [self._declare("topology", flavors.topology(), [])] if topology_aware else []
        return [
            self._declare(f"flavor-{name}", flavors.resource_flavor(name, group, args.placement), topologies)
            for name, group in args.groups.items()
        ]

    def _check(self, group_name: str, group: SliceGroup) -> KubernetesObject:
        configuration = self._declare(f"provisioning-{group_name}", flavors.provisioning(group_name, group), [])
        return self._declare(f"check-{group_name}", flavors.admission_check(group_name), [configuration])

    def _team(self, name: str, args: QueuesArgs, needed: list[KubernetesObject]) -> None:
        team = args.teams[name]
        manifest = cluster_queues.cluster_queue(name, team, args.groups, args.placement)
        queue = self._declare(f"quota-{name}", manifest, needed)
        labels = cluster_queues.MANAGED | admitted_pods(args.pod_levels[name])
        namespace = kubernetes.core.v1.Namespace(
            f"namespace-{name}",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(name=team.namespace, labels=labels, annotations=OURS),
            opts=self._after([queue]),
        )
        kubernetes.core.v1.ServiceAccount(
            f"trainer-{name}",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(name=SERVICE_ACCOUNT, namespace=team.namespace),
            automount_service_account_token=False,
            opts=self._after([namespace]),
        )
        hosts = sum(group.hosts for group in args.groups.values())
        border = network_policy.of_team(team.namespace, args.network, monitored=args.monitored)
        borders = [
            self._declare(f"network-{name}", border, [namespace]),
            self._declare(f"no-pod-priority-{name}", access.no_pod_priority(team.namespace), [namespace]),
            self._declare(f"bounds-{name}", access.bounds(team.namespace, hosts), [namespace]),
        ]
        self._open(name, team, borders)

    def _open(self, name: str, team: Team, borders: list[KubernetesObject]) -> None:
        """The namespace takes jobs, and whoever may come in comes in, once its borders stand."""
        self._declare(f"queue-{name}", cluster_queues.local_queue(name, team), borders)
        if access.subjects(team.members):
            role = self._declare(f"members-{name}", access.role(team.namespace), borders)
            self._declare(f"members-{name}-binding", access.binding(team.namespace, team.members), [role])

    def _declare(self, name: str, manifest: names.Manifest, after: Sequence[pulumi.Resource]) -> KubernetesObject:
        return KubernetesObject(name, owned(manifest), self._after(after))

    def _after(self, needed: Sequence[pulumi.Resource]) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=list(needed), hooks=self._hooks)
