"""The slices and teams of a stack rendered as Kueue objects.

Owns ResourceFlavors, ClusterQueues, LocalQueues and priority classes. Pure: declaring them in order
is the business of `infra.queues`.

Each team has a ClusterQueue of its own, and all lie in one cohort. So a team's quota is its own:
idle chips are lent to others, and taken back as soon as the owner needs them. One shared queue
would leave no way to say whose chips they are; queues without a cohort would leave chips idle.
"""

from infra.accelerators import TPU_RESOURCE
from infra.stack_file import SliceGroup, Team

type Manifest = dict[str, object]

KUEUE_NAMESPACE = "kueue-system"
SLICE_GROUP_LABEL = "slice-group"
"""Node label with the slice group's name: two groups may have the same accelerator and topology."""
PRIORITIES = {"low": 100, "normal": 500, "high": 1000}

_API_VERSION = "kueue.x-k8s.io/v1beta2"
_COHORT = "tpu"
_WAIT_UNTIL_ACTIVE = {"pulumi.com/waitFor": "condition=Active"}


def flavor_labels(name: str, group: SliceGroup) -> dict[str, str]:
    """Labels that the nodes of a slice group have, and no other nodes."""
    return {
        "cloud.google.com/gke-tpu-accelerator": group.shape.accelerator,
        "cloud.google.com/gke-tpu-topology": group.shape.topology,
        SLICE_GROUP_LABEL: name,
    }


def resource_flavor(name: str, group: SliceGroup) -> Manifest:
    """The chips of one slice group.

    It has the nodes' taint but no toleration: Kueue would take over the field in the JobSet's pods
    and the next `up` would conflict with it. Jobs carry their own toleration.
    """
    return {
        "apiVersion": _API_VERSION,
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": {
            "nodeLabels": flavor_labels(name, group),
            "nodeTaints": [{"key": TPU_RESOURCE, "value": "present", "effect": "NoSchedule"}],
        },
    }


def cluster_queue(name: str, team: Team) -> Manifest:
    """A team's quota, and how it is defended."""
    return {
        "apiVersion": _API_VERSION,
        "kind": "ClusterQueue",
        "metadata": {"name": name, "annotations": _WAIT_UNTIL_ACTIVE},
        "spec": {
            "cohortName": _COHORT,
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": team.namespace}},
            "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"},
            "resourceGroups": [
                {
                    "coveredResources": [TPU_RESOURCE],
                    "flavors": [
                        # A quantity as text, as the API server returns it: a number would show as drift.
                        {"name": group, "resources": [{"name": TPU_RESOURCE, "nominalQuota": str(chips)}]}
                        for group, chips in team.quota.items()
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
