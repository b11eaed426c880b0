"""The slices of a stack as Kueue knows them.

Owns ResourceFlavors, the topology of their nodes, and how Kueue asks for queued capacity. Pure:
who may use them is the business of `infra.cluster_queues`, declaring them that of `infra.queues`.
"""

from infra.capacity import Queued
from infra.names import KUEUE_API_VERSION, NODE_POOL_LABEL, SLICE_GROUP_LABEL, TPU_RESOURCE, WAIT_FOR, Manifest
from infra.settings.schema import Placement, SliceGroup

_TOPOLOGY = "slices"
_QUEUED = "cloud.google.com/gke-queued"
"""Node label of queued capacity, and key of the taint that GKE itself gives such nodes."""


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
    levels = (NODE_POOL_LABEL, "kubernetes.io/hostname")
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
    taints = {TPU_RESOURCE: "present", **({_QUEUED: "true"} if isinstance(group.capacity, Queued) else {})}
    return {
        "apiVersion": KUEUE_API_VERSION,
        "kind": "ResourceFlavor",
        "metadata": {"name": flavor_name(name, group, placement)},
        "spec": {
            "nodeLabels": flavor_labels(name, group),
            "nodeTaints": [{"key": key, "value": value, "effect": "NoSchedule"} for key, value in taints.items()],
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
            "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": name},
        },
    }
