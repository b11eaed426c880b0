"""The slices and teams of a stack rendered as Kueue objects.

Owns ResourceFlavors, ClusterQueues, LocalQueues, priority classes, and how Kueue asks for queued
capacity. Pure: declaring them in order is the business of `infra.queues`.

Each team has a ClusterQueue of its own, and all lie in one cohort. So a team's quota is its own:
idle chips are lent to others, and taken back as soon as the owner needs them. One shared queue
would leave no way to say whose chips they are; queues without a cohort would leave chips idle.
"""

from collections.abc import Iterable

from infra.accelerators import TPU_RESOURCE
from infra.capacity import Queued
from infra.stack_file import SliceGroup, Team

type Manifest = dict[str, object]

KUEUE_NAMESPACE = "kueue-system"
SLICE_GROUP_LABEL = "slice-group"
"""Node label with the slice group's name: two groups may have the same accelerator and topology."""
PRIORITIES = {"low": 100, "normal": 500, "high": 1000}

_API_VERSION = "kueue.x-k8s.io/v1beta2"
_COHORT = "tpu"
_QUEUED = "cloud.google.com/gke-queued"
"""Node label of queued capacity, and key of the taint that GKE itself gives such nodes."""
_WAIT_UNTIL_ACTIVE = {"pulumi.com/waitFor": "condition=Active"}


def flavor_labels(name: str, group: SliceGroup) -> dict[str, str]:
    """Labels that the nodes of a slice group have, and no other nodes."""
    return {
        "cloud.google.com/gke-tpu-accelerator": group.shape.accelerator,
        "cloud.google.com/gke-tpu-topology": group.shape.topology,
        **declared_labels(name, group),
    }


def declared_labels(name: str, group: SliceGroup) -> dict[str, str]:
    """Those of the labels that GKE does not set by itself.

    A kind of capacity has one only where GKE asks for it: the group's name tells the kinds apart.
    """
    queued = {_QUEUED: "true"} if isinstance(group.capacity, Queued) else {}
    return {SLICE_GROUP_LABEL: name, **queued}


def tolerations(group: SliceGroup) -> list[Manifest]:
    """What a pod needs to run on the nodes of the group."""
    keys = (TPU_RESOURCE, _QUEUED) if isinstance(group.capacity, Queued) else (TPU_RESOURCE,)
    return [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]


def resource_flavor(name: str, group: SliceGroup) -> Manifest:
    """The chips of one slice group.

    It has the nodes' taints but no toleration: Kueue would take over the field in the JobSet's pods
    and the next `up` would conflict with it. Jobs carry their own tolerations.
    """
    taints = {TPU_RESOURCE: "present", **({_QUEUED: "true"} if isinstance(group.capacity, Queued) else {})}
    return {
        "apiVersion": _API_VERSION,
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": {
            "nodeLabels": flavor_labels(name, group),
            "nodeTaints": [{"key": key, "value": value, "effect": "NoSchedule"} for key, value in taints.items()],
        },
    }


def provisioning(name: str, group: SliceGroup) -> Manifest:
    """How Kueue asks GKE for a slice of a queued group."""
    return {
        "apiVersion": _API_VERSION,
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
        "apiVersion": _API_VERSION,
        "kind": "AdmissionCheck",
        "metadata": {"name": name, "annotations": _WAIT_UNTIL_ACTIVE},
        "spec": {
            "controllerName": "kueue.x-k8s.io/provisioning-request",
            "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": name},
        },
    }


def cluster_queue(name: str, team: Team, queued: Iterable[str]) -> Manifest:
    """A team's quota, and how it is defended. `queued` are the groups with an AdmissionCheck of their name."""
    checks = [{"name": group, "onFlavors": [group]} for group in queued if group in team.quota]
    return {
        "apiVersion": _API_VERSION,
        "kind": "ClusterQueue",
        "metadata": {"name": name, "annotations": _WAIT_UNTIL_ACTIVE},
        "spec": {
            "cohortName": _COHORT,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": team.namespace}},
            **({"admissionChecksStrategy": {"admissionChecks": checks}} if checks else {}),
            "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
            "resourceGroups": [
                {
                    "coveredResources": [TPU_RESOURCE],
                    "flavors": [
                        # A quantity as text, as the API server returns it: a number would show as drift.
                        {"name": group, "resources": [{"name": TPU_RESOURCE, "nominalQuota": str(share.chips)}]}
                        for group, share in team.quota.items()
                    ],
                }
            ],
        },
    }


def local_queue(name: str, team: Team) -> Manifest:
    """Where the team's jobs are submitted."""
    return {
        "apiVersion": _API_VERSION,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": team.namespace, "annotations": _WAIT_UNTIL_ACTIVE},
        "spec": {"clusterQueue": name},
    }


def priority_class(name: str, value: int) -> Manifest:
    """A priority in the queue; the scheduler does not know it, so running pods are evicted by Kueue alone."""
    return {
        "apiVersion": _API_VERSION,
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": name},
        "value": value,
        "description": f"{name} priority in the TPU queues",
    }
