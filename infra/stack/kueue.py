"""Flavors and queues: a stack's slices and teams as objects of Kueue.

Each team has its own ClusterQueue, and all are in one cohort. So idle chips are lent to other teams and reclaimed as
soon as their owner needs them. With one shared queue no chips would belong to any team, and queues without a cohort
would leave chips idle."""

from collections.abc import Mapping, Sequence

from infra.stack.manifests import WAIT_FOR, Manifest, manifest, quantity
from infra.stack.names import (
    HOST_LABEL,
    KUEUE_API_VERSION,
    KUEUE_GROUP,
    NAMESPACE_LABEL,
    NODE_POOL_LABEL,
    PROVISIONING_CONTROLLER,
    TPU_RESOURCE,
)
from infra.stack.pods import node_labels
from infra.stack.settings.jobs import JobSettings
from infra.stack.settings.schema import Placement, Preemption, Quota, SliceGroup, Team

PRIORITIES = {"low": 100, "normal": 500, "high": 1000}

TOPOLOGY, COHORT = "slices", "tpu"
_STOP_POLICIES = {"open": "None", "hold": "Hold", "drain": "HoldAndDrain"}


def flavor_name(name: str, group: SliceGroup, placement: Placement) -> str:
    """Return the flavor's name: the kind of its nodes, then the slice group, because two groups may be alike.

    Kueue allows no change of a flavor once it has a topology. So its name contains everything that identifies its
    nodes: an edit creates a new flavor, points the queues to it, then deletes the old one. Jobs that were admitted with
    the old flavor would keep running, but no queue would count their chips, so `infra.guard` refuses the edit."""
    topology_aware = ["tas"] if placement == "topology-aware" else []
    return "-".join([group.generation, group.topology, *topology_aware, group.capacity.kind, name])


_UNLIMITED = {"cpu": "1M", "memory": "1P"}
"""Quotas of what Kueue counts besides chips: a pod takes whole hosts, so CPU and memory are never short."""


def topology(prefix: str = "") -> Manifest:
    """Return the levels from a slice to its hosts, by which Kueue counts free hosts."""
    levels = [{"nodeLabel": label} for label in (NODE_POOL_LABEL, HOST_LABEL)]
    return manifest(KUEUE_API_VERSION, "Topology", f"{prefix}{TOPOLOGY}", spec={"levels": levels})


def resource_flavor(name: str, group: SliceGroup, placement: Placement, prefix: str = "") -> Manifest:
    """Return the flavor of one slice group.

    It has the nodes' taints but no toleration. Kueue would take over the field in the JobSet's pods, and the next `up`
    would conflict with it. Jobs have their own tolerations.
    """
    taints = [{"key": key, "value": value, "effect": "NoSchedule"} for key, value in group.capacity.taints.items()]
    spec: Manifest = {
        "nodeLabels": node_labels(name, group),
        "nodeTaints": taints,
        **({"topologyName": f"{prefix}{TOPOLOGY}"} if placement == "topology-aware" else {}),
    }
    return manifest(KUEUE_API_VERSION, "ResourceFlavor", flavor_name(name, group, placement), spec=spec)


def provisioning(name: str, group: SliceGroup) -> Manifest:
    """Return the configuration with which Kueue requests a slice of a queued group from GKE."""
    # The pods of a request run on the nodes that were created for it: one slice, in one node pool.
    selected = {
        "key": "autoscaling.gke.io/provisioning-request",
        "valueFromProvisioningClassDetail": "ResizeRequestName",
    }
    spec: Manifest = {
        "provisioningClassName": "queued-provisioning.gke.io",
        "managedResources": [TPU_RESOURCE],
        "parameters": {"tpu-topology": group.shape.topology},
        "podSetUpdates": {"nodeSelector": [selected]},
    }
    return manifest(KUEUE_API_VERSION, "ProvisioningRequestConfig", name, spec=spec)


def admission_check(name: str) -> Manifest:
    """Return the check that holds an admitted job until the hosts of its slice exist."""
    spec: Manifest = {
        "controllerName": PROVISIONING_CONTROLLER,
        "parameters": {"apiGroup": KUEUE_GROUP, "kind": "ProvisioningRequestConfig", "name": name},
    }
    return manifest(KUEUE_API_VERSION, "AdmissionCheck", name, annotations={WAIT_FOR: "condition=Active"}, spec=spec)


def cohort(prefix: str = "") -> Manifest:
    """Return the cohort of all queues. Kueue would create it implicitly; as a declared object it is also deleted."""
    return manifest(KUEUE_API_VERSION, "Cohort", f"{prefix}{COHORT}")


def cluster_queue(
    name: str,
    team: Team,
    groups: Mapping[str, SliceGroup],
    placement: Placement,
    prefix: str = "",
    counted: Sequence[str] = (),
) -> Manifest:
    """Return a team's quota, its enforcement, and the order in which its flavors are tried.

    `counted` are the resources besides chips that a Kueue of others counts. A job that requests them gets no quota
    from a queue without them."""
    others = [{"name": resource, "nominalQuota": _UNLIMITED[resource]} for resource in counted]
    names = {group: flavor_name(group, groups[group], placement) for group in team.quota}
    checks = [{"name": group, "onFlavors": [names[group]]} for group in team.quota if groups[group].capacity.queued]
    flavors = [
        {"name": names[group], "resources": [{"name": TPU_RESOURCE, **_limits(share)}, *others]}
        for group, share in team.quota.items()
    ]
    spec: Manifest = {
        "cohortName": f"{prefix}{COHORT}",
        "stopPolicy": _STOP_POLICIES[team.admission],
        "namespaceSelector": {"matchLabels": {NAMESPACE_LABEL: team.namespace}},
        **({"admissionChecksStrategy": {"admissionChecks": checks}} if checks else {}),
        **({"fairSharing": {"weight": quantity(team.weight)}} if team.weight else {}),
        "preemption": _preemption(team.preemption),
        # Idle chips of other teams are used before the next flavor, because they are already paid for. Preemption comes
        # after that: no job is preempted while another flavor has room.
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        "resourceGroups": [{"coveredResources": [TPU_RESOURCE, *counted], "flavors": flavors}],
    }
    return manifest(KUEUE_API_VERSION, "ClusterQueue", name, annotations=_wait_annotation(team), spec=spec)


def local_queue(name: str, team: Team, job: JobSettings | None = None) -> Manifest:
    """Return the queue of team `name` to which its members submit, or the queue of a single job of the stack.

    A queue for each job lets `paused` stop a job without touching its JobSet: Kueue sets the `suspend` of a JobSet, and
    the Workload, whose `active` has the same effect, is not an object of the stack. A stopped LocalQueue evicts the job
    like a preemption (https://kueue.sigs.k8s.io/docs/concepts/local_queue/)."""
    awaited = _wait_annotation(team, paused=job is not None and job.paused)
    spec = {"clusterQueue": name, **({"stopPolicy": "HoldAndDrain" if job.paused else "None"} if job else {})}
    own_name = job.queue if job else name
    return manifest(KUEUE_API_VERSION, "LocalQueue", own_name, team.namespace, annotations=awaited, spec=spec)


def priority_class(name: str, value: int) -> Manifest:
    """Return a priority of the queue. The scheduler does not know it, so only Kueue evicts running pods because of
    it."""
    description = f"{name} priority in the TPU queues"
    return manifest(KUEUE_API_VERSION, "WorkloadPriorityClass", name, value=value, description=description)


def _wait_annotation(team: Team, *, paused: bool = False) -> dict[str, str]:
    """Return the annotation with the condition of a declared queue; a stopped one never becomes active."""
    return {WAIT_FOR: "condition=Active" if team.admission == "open" and not paused else "condition=Active=False"}


def _preemption(preemption: Preemption) -> Manifest:
    return {
        "withinClusterQueue": _pascal_case(preemption.within_team),
        "reclaimWithinCohort": _pascal_case(preemption.reclaim),
        "borrowWithinCohort": {"policy": _pascal_case(preemption.while_borrowing)},
    }


def _pascal_case(policy: str) -> str:
    return policy.title().replace("-", "")


def _limits(share: Quota) -> dict[str, str]:
    limits = {"borrowingLimit": share.borrowing_limit, "lendingLimit": share.lending_limit}
    return {
        "nominalQuota": quantity(share.chips),
        **{key: quantity(limit) for key, limit in limits.items() if limit is not None},
    }
