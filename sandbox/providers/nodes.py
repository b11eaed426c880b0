"""Kubernetes Nodes of a node pool, labelled, tainted and sized as GKE does it. Pure.

Which pools GKE would accept is in `node_pools`; who keeps the Nodes ready is the node agent, which
knows them by `NODE_LABEL`.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from infra.names import ACCELERATOR_LABEL, HOST_LABEL, NODE_POOL_LABEL, TOPOLOGY_LABEL, TPU_RESOURCE
from infra.tpu import SliceShape, generations
from sandbox.providers.values import Object
from sandbox.site import NODE_LABEL, Site

_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}

_GIB_PER_VCPU = {"standard": 4, "highmem": 8, "highcpu": 1}
_SHARED_CORE = (2, 4)
"""Size of a machine whose name does not tell it, such as e2-medium."""

_KERNEL_SHARE = 0.016
"""Memory that the kernel keeps: measured on tpu7x-standard-4t."""


@dataclass(frozen=True)
class Pool:
    """A node pool as far as its Nodes show it."""

    cluster: str
    name: str
    machine_type: str
    zones: tuple[str, ...]
    nodes_per_zone: int
    version: str
    shape: SliceShape | None
    """None for a pool without TPUs."""
    labels: dict[str, str]
    taints: tuple[tuple[str, str, str], ...]
    """(key, value, effect) as the GKE API writes them."""
    spot: bool
    flex_start: bool


def nodes(pool: Pool, site: Site) -> list[Object]:
    """The Nodes of the pool with their status, in the order of their names."""
    return [
        _node(pool, zone, index, site)
        for zone_index, zone in enumerate(pool.zones)
        for index in range(zone_index * pool.nodes_per_zone, (zone_index + 1) * pool.nodes_per_zone)
    ]


def allocatable(machine_type: str) -> tuple[int, int]:
    """Millicores and MiB that GKE leaves to pods.

    Reservations as documented on https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes
    """
    vcpus, memory_gib = _size(machine_type)
    reserved_cores = _tiered(vcpus, ((1, 0.06), (1, 0.01), (2, 0.005), (float("inf"), 0.0025)))
    usable_gib = memory_gib * (1 - _KERNEL_SHARE)
    tiers = ((4, 0.25), (4, 0.20), (8, 0.10), (112, 0.06), (float("inf"), 0.02))
    return int((vcpus - reserved_cores) * 1000), int((usable_gib - _tiered(usable_gib, tiers)) * 1024) - 100


def _size(machine_type: str) -> tuple[int, int]:
    for generation in generations():
        for machine in generation.machines:
            if machine.name == machine_type:
                return machine.vcpus, machine.memory_gib
    named = re.search(r"-(standard|highmem|highcpu)-(\d+)$", machine_type)
    if named is None:
        return _SHARED_CORE
    vcpus = int(named[2])
    return vcpus, vcpus * _GIB_PER_VCPU[named[1]]


def _tiered(amount: float, tiers: tuple[tuple[float, float], ...]) -> float:
    total = 0.0
    for size, share in tiers:
        total += min(size, amount) * share
        amount -= min(size, amount)
    return total


def _node(pool: Pool, zone: str, index: int, site: Site) -> Object:
    digest = hashlib.sha256(f"{pool.cluster}/{pool.name}".encode()).hexdigest()
    name = f"gke-{pool.cluster[:20]}-{pool.name[:20]}-{digest[:8]}-{index:04}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": _labels(pool, zone, name)},
        "spec": {"providerID": f"gce://sandbox/{zone}/{name}", "taints": _taints(pool)},
        "status": _status(pool, name, site),
    }


def _labels(pool: Pool, zone: str, name: str) -> dict[str, str]:
    labels = {
        **pool.labels,
        NODE_LABEL: "true",
        NODE_POOL_LABEL: pool.name,
        "cloud.google.com/gke-os-distribution": "cos",
        "cloud.google.com/machine-family": pool.machine_type.partition("-")[0],
        "kubernetes.io/arch": "amd64",
        HOST_LABEL: name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": pool.machine_type,
        "topology.kubernetes.io/region": zone.rpartition("-")[0],
        "topology.kubernetes.io/zone": zone,
    }
    if pool.spot:
        labels |= {"cloud.google.com/gke-spot": "true", "cloud.google.com/gke-provisioning": "spot"}
    if pool.flex_start:
        labels["cloud.google.com/gke-flex-start"] = "true"
    if pool.shape is not None:
        labels |= {
            ACCELERATOR_LABEL: pool.shape.accelerator,
            TOPOLOGY_LABEL: pool.shape.topology,
            "cloud.google.com/gke-accelerator-count": str(pool.shape.chips_per_host),
        }
    return labels


def _taints(pool: Pool) -> list[dict[str, str]]:
    taints = {(key, effect): value for key, value, effect in pool.taints}
    if pool.shape is not None:
        taints[TPU_RESOURCE, "NO_SCHEDULE"] = "present"
    return [{"key": key, "value": value, "effect": _EFFECTS[effect]} for (key, effect), value in taints.items()]


def _status(pool: Pool, name: str, site: Site) -> Object:
    millicores, memory_mib = allocatable(pool.machine_type)
    resources = {"cpu": f"{millicores}m", "memory": f"{memory_mib}Mi", "pods": "110", "ephemeral-storage": "44Gi"}
    if pool.shape is not None:
        resources[TPU_RESOURCE] = str(pool.shape.chips_per_host)
    system: dict[str, Any] = {key: "sandbox" for key in ("machineID", "systemUUID", "bootID", "kernelVersion")}
    return {
        "addresses": [{"type": "InternalIP", "address": site.address}, {"type": "Hostname", "address": name}],
        "capacity": resources,
        "allocatable": resources,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": site.kubelet_port}},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "sandbox node"}],
        "nodeInfo": {
            **system,
            "osImage": "Container-Optimized OS from Google",
            "containerRuntimeVersion": "sandbox://processes",
            "kubeletVersion": f"v{pool.version}",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    }
