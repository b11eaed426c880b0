"""Flavors, queues and namespaces of a stack as resources, and the order in which they are created.

A ClusterQueue needs its cohort, flavors and admission checks; a check needs its configuration; a flavor needs its
topology. A team's namespace needs the ClusterQueue: whatever still runs in the namespace is deleted with it, before
Kueue has to release the queue. The namespace accepts jobs and members only after its admission policies exist. Deletion
happens in reverse order, so Kueue is still running to remove every finalizer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes

from infra.cluster.queue_stop import queue_stop_policies
from infra.gke_cluster import ClusterOutputs
from infra.objects import KubernetesObject
from infra.stack import access, admission_policies
from infra.stack.access import Allowance
from infra.stack.kueue import (
    PRIORITIES,
    admission_check,
    cluster_queue,
    cohort,
    local_queue,
    priority_class,
    provisioning,
    resource_flavor,
    topology,
)
from infra.stack.manifests import Manifest, mark_ours, owner_annotations
from infra.stack.names import MANAGED, SERVICE_ACCOUNT
from infra.stack.pods import admitted_pods
from infra.stack.settings.schema import SliceGroup
from infra.stack.settings.stack import FleetSpec


@dataclass(frozen=True)
class QueuesArgs:
    """The slice groups and teams of a fleet, and their cluster."""

    spec: FleetSpec
    cluster: ClusterOutputs
    allowances: Mapping[str, Allowance]
    """What the pods of each team may do."""
    monitored: bool
    """Whether collectors of metrics may reach the pods."""
    limited: bool
    """Whether `budget.usd_total` limits the jobs, so that the queues may be stopped."""
    hooks: pulumi.ResourceHookBinding
    """Hooks of every object that other objects may hold."""


class Queues(pulumi.ComponentResource):
    """Flavors and priorities, plus a namespace for each team with its queue, members and admission policies."""

    def __init__(self, name: str, args: QueuesArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tpu-multislice:infra:Queues", name, None, opts)
        self._prefix, self._stack = name.removesuffix("queues"), args.spec.prefix
        self._hooks = args.hooks
        for priority, value in PRIORITIES.items():
            self._declare(f"priority-{priority}", priority_class(f"{args.spec.prefix}{priority}", value), [])
        needed = [*self._flavors(args), self._declare("cohort", cohort(args.spec.prefix), [])]
        needed += [self._check(name, group) for name, group in args.spec.slices.items() if group.capacity.queued]
        needed += self._policies(args)
        for team_name in args.spec.teams:
            self._team(team_name, args, needed)
        self.register_outputs({})

    def _policies(self, args: QueuesArgs) -> list[KubernetesObject]:
        objects = admission_policies.bad_host_objects(args.spec.teams, args.spec.prefix)
        marks = {f"bad-host-{name}": rendered for name, rendered in objects.items()}
        declared: list[KubernetesObject] = []
        # In this order: the role that marks bad hosts is bound only once the policies restrict it.
        on_hosts = {name for name, allowance in args.allowances.items() if allowance.host_network}
        limits = {name: allowance.head_limit for name, allowance in args.allowances.items()}
        policies = admission_policies.team_policies(args.spec.teams, on_hosts, limits, args.spec.prefix)
        stops = queue_stop_policies(args.spec.prefix) if args.limited else {}
        for name, rendered in {**policies, **stops, **marks}.items():
            declared.append(self._declare(name, rendered, declared[-1:]))
        return declared

    def _flavors(self, args: QueuesArgs) -> list[KubernetesObject]:
        placement = args.spec.scheduling.placement
        topologies = (
            [self._declare("topology", topology(args.spec.prefix), [])] if placement == "topology-aware" else []
        )
        return [
            self._declare(f"flavor-{name}", resource_flavor(name, group, placement, args.spec.prefix), topologies)
            for name, group in args.spec.slices.items()
        ]

    def _check(self, group_name: str, group: SliceGroup) -> KubernetesObject:
        configuration = self._declare(f"provisioning-{group_name}", provisioning(group_name, group), [])
        return self._declare(f"check-{group_name}", admission_check(group_name), [configuration])

    def _team(self, name: str, args: QueuesArgs, needed: list[KubernetesObject]) -> None:
        team = args.spec.teams[name]
        counted = args.cluster.shared.counted if args.cluster.shared else ()
        placement = args.spec.scheduling.placement
        quota = cluster_queue(name, team, args.spec.slices, placement, args.spec.prefix, counted)
        queue = self._declare(f"quota-{name}", quota, needed)
        labels = MANAGED | admitted_pods(args.allowances[name].pod_level)
        namespace = kubernetes.core.v1.Namespace(
            f"{self._prefix}namespace-{name}",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(
                name=team.namespace, labels=labels, annotations=owner_annotations(args.spec.prefix)
            ),
            opts=self._after([queue]),
        )
        kubernetes.core.v1.ServiceAccount(
            f"{self._prefix}trainer-{name}",
            metadata=kubernetes.meta.v1.ObjectMetaArgs(name=SERVICE_ACCOUNT, namespace=team.namespace),
            automount_service_account_token=False,
            opts=self._after([namespace]),
        )
        hosts = sum(group.hosts for group in args.spec.slices.values())
        network = access.network_policy(team.namespace, args.cluster.ranges, monitored=args.monitored)
        around = [
            self._declare(f"network-{name}", network, [namespace]),
            self._declare(f"no-pod-priority-{name}", access.no_pod_priority(team.namespace), [namespace]),
            self._declare(f"bounds-{name}", access.bounds(team.namespace, hosts), [namespace]),
        ]
        # The namespace accepts jobs and members once its admission policies exist.
        self._declare(f"queue-{name}", local_queue(name, team), around)
        if access.subjects(team.members):
            role = self._declare(f"members-{name}", access.role(team.namespace), around)
            self._declare(f"members-{name}-binding", access.binding(team.namespace, team.members), [role])

    def _declare(self, name: str, rendered: Manifest, after: Sequence[pulumi.Resource]) -> KubernetesObject:
        return KubernetesObject(f"{self._prefix}{name}", mark_ours(rendered, self._stack), self._after(after))

    def _after(self, needed: Sequence[pulumi.Resource]) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=list(needed), hooks=self._hooks)
