"""Queues, flavors and namespaces: what Kueue knows of a stack's slices and teams."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes

from infra import access, borders, objects
from infra.controllers import Resources
from infra.names import (
    HOST_LABEL,
    KUEUE_API_VERSION,
    KUEUE_GROUP,
    NAMESPACE_LABEL,
    NODE_POOL_LABEL,
    SERVICE_ACCOUNT,
    TPU_RESOURCE,
)
from infra.objects import OURS, WAIT_FOR, KubernetesObject, Manifest, owned
from infra.pods import admitted_pods, node_labels
from infra.settings.jobs import PodLevel
from infra.settings.schema import Network, Placement, Preemption, Quota, SliceGroup, Team

_TOPOLOGY = "slices"


def flavor_name(name: str, group: SliceGroup, placement: Placement) -> str:
    """The flavor's name: what its nodes are, then the slice group, for two groups may be alike.

    Kueue lets nothing of a flavor change once it has a topology. So all that tells its nodes apart
    is in its name: an edit makes a new flavor, points the queues to it, then deletes the old one.
    Jobs that run by the old one run on, but no queue counts their chips any more.
    """
    topology_aware = ["tas"] if placement == "topology-aware" else []
    return "-".join([group.generation, group.topology, *topology_aware, group.capacity.kind, name])


def topology() -> Manifest:
    """The way from a host to its slice, by which Kueue counts free hosts."""
    levels = (NODE_POOL_LABEL, HOST_LABEL)
    return {
        "apiVersion": KUEUE_API_VERSION,
        "kind": "Topology",
        "metadata": {"name": _TOPOLOGY},
        "spec": {"levels": [{"nodeLabel": label} for label in levels]},
    }


def resource_flavor(name: str, group: SliceGroup, placement: Placement) -> Manifest:
    """The chips of one slice group.

    It has the nodes' taints but no toleration: Kueue would take over the field in the JobSet's pods
    and the next `up` would conflict with it. Jobs carry their own tolerations.
    """
    return {
        "apiVersion": KUEUE_API_VERSION,
        "kind": "ResourceFlavor",
        "metadata": {"name": flavor_name(name, group, placement)},
        "spec": {
            "nodeLabels": node_labels(name, group),
            "nodeTaints": [
                {"key": key, "value": value, "effect": "NoSchedule"} for key, value in group.capacity.taints.items()
            ],
            **({"topologyName": _TOPOLOGY} if placement == "topology-aware" else {}),
        },
    }


def provisioning(name: str, group: SliceGroup) -> Manifest:
    """How Kueue asks GKE for a slice of a queued group."""
    return {
        "apiVersion": KUEUE_API_VERSION,
        "kind": "ProvisioningRequestConfig",
        "metadata": {"name": name},
        "spec": {
            "provisioningClassName": "queued-provisioning.gke.io",
            "managedResources": [TPU_RESOURCE],
            "parameters": {"tpu-topology": group.shape.topology},
            # The pods of a request go to the nodes that came for it: one slice, in one node pool.
            "podSetUpdates": {
                "nodeSelector": [
                    {
                        "key": "autoscaling.gke.io/provisioning-request",
                        "valueFromProvisioningClassDetail": "ResizeRequestName",
                    }
                ]
            },
        },
    }


def admission_check(name: str) -> Manifest:
    """Holds a job that has its quota until the hosts of its slice are there."""
    return {
        "apiVersion": KUEUE_API_VERSION,
        "kind": "AdmissionCheck",
        "metadata": {"name": name, "annotations": {WAIT_FOR: "condition=Active"}},
        "spec": {
            "controllerName": "kueue.x-k8s.io/provisioning-request",
            "parameters": {"apiGroup": KUEUE_GROUP, "kind": "ProvisioningRequestConfig", "name": name},
        },
    }


MANAGED = {"kueue-managed": "true"}
"""Label of the namespaces whose jobs Kueue holds back until a queue admits them."""
PRIORITIES = {"low": 100, "normal": 500, "high": 1000}
_COHORT = "tpu"
_STOP_POLICIES = {"open": "None", "hold": "Hold", "drain": "HoldAndDrain"}
_SUFFIXES = ("m", "", "k", "M", "G")
"""Of quantities, each a thousand times the one before it."""


def cohort() -> Manifest:
    """The queues that lend to each other.

    Kueue would make one of a name that queues mention; declared, it stands and goes in its order.
    """
    return {"apiVersion": KUEUE_API_VERSION, "kind": "Cohort", "metadata": {"name": _COHORT}}


def cluster_queue(name: str, team: Team, groups: Mapping[str, SliceGroup], placement: Placement) -> Manifest:
    """A team's quota, how it is defended, and in which order its flavors are tried."""
    names = {group: flavor_name(group, groups[group], placement) for group in team.quota}
    queued = [group for group in team.quota if groups[group].capacity.queued]
    checks = [{"name": group, "onFlavors": [names[group]]} for group in queued]
    return {
        "apiVersion": KUEUE_API_VERSION,
        "kind": "ClusterQueue",
        "metadata": {"name": name, "annotations": _awaited(team)},
        "spec": {
            "cohortName": _COHORT,
            "stopPolicy": _STOP_POLICIES[team.admission],
            "namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: team.namespace}},
            **({"admissionChecksStrategy": {"admissionChecks": checks}} if checks else {}),
            **({"fairSharing": {"weight": quantity(team.weight)}} if team.weight else {}),
            "preemption": _preemption(team.preemption),
            # Idle chips that others lend come before the next flavor, for they are paid already. Running
            # jobs come after it: nobody is pushed out while another flavor has room.
            "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
            "resourceGroups": [
                {
                    "coveredResources": [TPU_RESOURCE],
                    "flavors": [
                        {"name": names[group], "resources": [{"name": TPU_RESOURCE, **_limits(share)}]}
                        for group, share in team.quota.items()
                    ],
                }
            ],
        },
    }


def local_queue(name: str, team: Team) -> Manifest:
    """Where the team's jobs are submitted."""
    return {
        "apiVersion": KUEUE_API_VERSION,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": team.namespace, "annotations": _awaited(team)},
        "spec": {"clusterQueue": name},
    }


def priority_class(name: str, value: int) -> Manifest:
    """A priority in the queue; the scheduler does not know it, so running pods are evicted by Kueue alone."""
    return {
        "apiVersion": KUEUE_API_VERSION,
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": name},
        "value": value,
        "description": f"{name} priority in the TPU queues",
    }


def quantity(amount: float) -> str:
    """An amount, to a thousandth, as Kueue rewrites it when it takes a new queue: else it would show as drift."""
    if not amount:
        return "0"
    count, scale = round(amount * 1000), 0
    while count % 1000 == 0:
        count, scale = count // 1000, scale + 1
    return f"{count}{_SUFFIXES[scale]}"


def amount(written: str | int) -> float:
    """The amount that `quantity`, or Kueue, wrote so."""
    number = str(written).rstrip("".join(_SUFFIXES))
    suffix = str(written).removeprefix(number)
    return float(number) * 1000.0 ** (_SUFFIXES.index(suffix) - 1)


def _awaited(team: Team) -> dict[str, str]:
    """What makes a queue count as declared; one that is stopped never becomes active."""
    return {WAIT_FOR: "condition=Active" if team.admission == "open" else "condition=Active=False"}


def _preemption(preemption: Preemption) -> Manifest:
    return {
        "withinClusterQueue": _in_kueues_words(preemption.within_team),
        "reclaimWithinCohort": _in_kueues_words(preemption.reclaim),
        "borrowWithinCohort": {"policy": _in_kueues_words(preemption.while_borrowing)},
    }


def _in_kueues_words(policy: str) -> str:
    return policy.title().replace("-", "")


def _limits(share: Quota) -> dict[str, str]:
    limits = {"borrowingLimit": share.borrowing_limit, "lendingLimit": share.lending_limit}
    return {
        "nominalQuota": quantity(share.chips),
        **{key: quantity(limit) for key, limit in limits.items() if limit is not None},
    }


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
        for priority, value in PRIORITIES.items():
            self._declare(f"priority-{priority}", priority_class(priority, value), [])
        needed = [*self._flavors(args), self._declare("cohort", cohort(), [])]
        needed += [self._check(group_name, group) for group_name, group in args.groups.items() if group.capacity.queued]
        needed += self._admission(args)
        for team_name in args.teams:
            self._team(team_name, args, needed)
        self.register_outputs({})

    def _admission(self, args: QueuesArgs) -> list[KubernetesObject]:
        marks = {f"bad-host-{name}": manifest for name, manifest in borders.bad_host_objects(args.teams).items()}
        declared: list[KubernetesObject] = []
        # In their order: the role is given to nobody before the policies narrow it.
        policies = borders.of_teams(args.teams, args.host_network_teams, args.head_limits)
        for name, manifest in {**policies, **marks}.items():
            declared.append(self._declare(name, manifest, declared[-1:]))
        return declared

    def _flavors(self, args: QueuesArgs) -> list[KubernetesObject]:
        topology_aware = args.placement == "topology-aware"
        topologies = [self._declare("topology", topology(), [])] if topology_aware else []
        return [
            self._declare(f"flavor-{name}", resource_flavor(name, group, args.placement), topologies)
            for name, group in args.groups.items()
        ]

    def _check(self, group_name: str, group: SliceGroup) -> KubernetesObject:
        configuration = self._declare(f"provisioning-{group_name}", provisioning(group_name, group), [])
        return self._declare(f"check-{group_name}", admission_check(group_name), [configuration])

    def _team(self, name: str, args: QueuesArgs, needed: list[KubernetesObject]) -> None:
        team = args.teams[name]
        manifest = cluster_queue(name, team, args.groups, args.placement)
        queue = self._declare(f"quota-{name}", manifest, needed)
        labels = MANAGED | admitted_pods(args.pod_levels[name])
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
        border = access.of_team(team.namespace, args.network, monitored=args.monitored)
        borders = [
            self._declare(f"network-{name}", border, [namespace]),
            self._declare(f"no-pod-priority-{name}", access.no_pod_priority(team.namespace), [namespace]),
            self._declare(f"bounds-{name}", access.bounds(team.namespace, hosts), [namespace]),
        ]
        self._open(name, team, borders)

    def _open(self, name: str, team: Team, borders: list[KubernetesObject]) -> None:
        """The namespace takes jobs, and whoever may come in comes in, once its borders stand."""
        self._declare(f"queue-{name}", local_queue(name, team), borders)
        if access.subjects(team.members):
            role = self._declare(f"members-{name}", access.role(team.namespace), borders)
            self._declare(f"members-{name}-binding", access.binding(team.namespace, team.members), [role])

    def _declare(self, name: str, manifest: objects.Manifest, after: Sequence[pulumi.Resource]) -> KubernetesObject:
        return KubernetesObject(name, owned(manifest), self._after(after))

    def _after(self, needed: Sequence[pulumi.Resource]) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=list(needed), hooks=self._hooks)
