"""Node pools that GKE accepts or refuses, in the words of its API, and their Nodes, labelled and sized as in GKE. Pure.

The texts are those that people report from live clusters, or our own where no report exists. The rules are based on the
tables of accelerators and capacity. The node agent keeps the Nodes ready.
"""

import hashlib
import re
from dataclasses import dataclass

from infra.cluster.kubernetes import Json
from infra.stack.names import (
    ACCELERATOR_LABEL,
    FLEX_START_LABEL,
    HOST_LABEL,
    NODE_POOL_LABEL,
    SPOT_LABEL,
    TOPOLOGY_LABEL,
    TPU_RESOURCE,
    ZONE_LABEL,
)
from infra.stack.tpu import SliceShape, all_shapes, generations, shape_of
from sandbox.providers.plugin import Refusal
from sandbox.providers.values import at, has_unknown
from sandbox.site import NODE_LABEL, Site
from sandbox.tpu_environment import MACHINE_LABEL

_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}

_GIB_PER_VCPU = {"standard": 4, "highmem": 8, "highcpu": 1}
_SHARED_CORE = (2, 4)
"""vCPUs and GiB of a machine whose name does not contain them, such as e2-medium."""

_KERNEL_SHARE = 0.016
"""Share of memory that the kernel keeps, measured on tpu7x-standard-4t."""


@dataclass(frozen=True)
class Pool:
    """The properties of a node pool that are visible in its Nodes."""

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


def nodes(pool: Pool, site: Site) -> list[Json]:
    """Return the Nodes of the pool with their status, in the order of their names."""
    zones = [zone for zone in pool.zones for _ in range(pool.nodes_per_zone)]
    return [_node(pool, zone, index, site) for index, zone in enumerate(zones)]


def allocatable(machine_type: str) -> tuple[int, int]:
    """Return the millicores and MiB that GKE leaves to pods.

    Reservations as documented on https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes
    """
    vcpus, memory_gib = _size(machine_type)
    reserved_cores = _sum_tiers(vcpus, ((1, 0.06), (1, 0.01), (2, 0.005), (float("inf"), 0.0025)))
    usable_gib = memory_gib * (1 - _KERNEL_SHARE)
    tiers = ((4, 0.25), (4, 0.20), (8, 0.10), (112, 0.06), (float("inf"), 0.02))
    return int((vcpus - reserved_cores) * 1000), int((usable_gib - _sum_tiers(usable_gib, tiers)) * 1024) - 100


def _size(machine_type: str) -> tuple[int, int]:
    of_tpus = (machine for generation in generations() for machine in generation.machines)
    if found := next((machine for machine in of_tpus if machine.name == machine_type), None):
        return found.vcpus, found.memory_gib
    named = re.search(r"-(standard|highmem|highcpu)-(\d+)$", machine_type)
    if named is None:
        return _SHARED_CORE
    vcpus = int(named[2])
    return vcpus, vcpus * _GIB_PER_VCPU[named[1]]


def _sum_tiers(amount: float, tiers: tuple[tuple[float, float], ...]) -> float:
    total = 0.0
    for size, share in tiers:
        total += min(size, amount) * share
        amount -= min(size, amount)
    return total


def _node(pool: Pool, zone: str, index: int, site: Site) -> Json:
    digest = hashlib.sha256(f"{pool.cluster}/{pool.name}".encode()).hexdigest()
    name = f"gke-{pool.cluster[:20]}-{pool.name[:20]}-{digest[:8]}-{index:04}"
    values = {(key, effect): value for key, value, effect in pool.taints}
    if pool.shape is not None:
        values[TPU_RESOURCE, "NO_SCHEDULE"] = "present"
    taints = [{"key": key, "value": value, "effect": _EFFECTS[effect]} for (key, effect), value in values.items()]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": _labels(pool, zone, name)},
        "spec": {"providerID": f"gce://sandbox/{zone}/{name}", "taints": taints},
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
        MACHINE_LABEL: pool.machine_type,
        "topology.kubernetes.io/region": zone.rpartition("-")[0],
        ZONE_LABEL: zone,
    }
    if pool.spot:
        labels |= {SPOT_LABEL: "true", "cloud.google.com/gke-provisioning": "spot"}
    if pool.flex_start:
        labels[FLEX_START_LABEL] = "true"
    if pool.shape is not None:
        labels |= {
            ACCELERATOR_LABEL: pool.shape.accelerator,
            TOPOLOGY_LABEL: pool.shape.topology,
            "cloud.google.com/gke-accelerator-count": str(pool.shape.chips_per_host),
        }
    return labels


def _status(pool: Pool, name: str, site: Site) -> Json:
    millicores, memory_mib = allocatable(pool.machine_type)
    resources = {"cpu": f"{millicores}m", "memory": f"{memory_mib}Mi", "pods": "110", "ephemeral-storage": "44Gi"}
    if pool.shape is not None:
        resources[TPU_RESOURCE] = str(pool.shape.chips_per_host)
    return {
        "addresses": [{"type": "InternalIP", "address": site.address}, {"type": "Hostname", "address": name}],
        "capacity": resources,
        "allocatable": resources,
        "daemonEndpoints": {"kubeletEndpoint": {"Port": site.kubelet_port}},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "sandbox node"}],
        "nodeInfo": {
            **dict.fromkeys(("machineID", "systemUUID", "bootID", "kernelVersion"), "sandbox"),
            "osImage": "Container-Optimized OS from Google",
            "containerRuntimeVersion": "sandbox://processes",
            "kubeletVersion": f"v{pool.version}",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": "amd64",
        },
    }


_DEFAULT_MACHINE_TYPE = "e2-medium"
_DECISIVE = ("nodeConfig", "placementPolicy", "nodeCount", "initialNodeCount", "autoscaling", "nodeLocations")


def is_decided(properties: Json, cluster: Json | None) -> bool:
    """Return whether a preview knows everything that the rules need; the zones may be those of a cluster that does not
    exist yet."""
    zones_known = cluster is not None or "nodeLocations" in properties or _is_zone(properties.get("location", ""))
    return zones_known and not any(has_unknown(properties.get(key)) for key in _DECISIVE)


def require_valid(properties: Json, cluster: Json, policy: Json | None) -> None:
    """Refuse a pool that GKE would not create or resize, in the API's words.

    `cluster` and `policy` are the cluster and the workload policy that the pool names. The cluster's location is a
    region or a zone; it is empty in a preview that does not know it.
    """
    pool, location = pool_of(properties, cluster, policy), str(cluster["location"])
    region = "-".join(location.split("-")[:2])
    foreign = [zone for zone in pool.zones if not zone.startswith(f"{region}-")]
    if location and foreign:
        raise _invalid(f'Node locations must be zones of region "{region}", got "{", ".join(foreign)}".')
    if pool.shape is not None:
        _require_tpu_pool(pool, pool.shape, properties)


def pool_of(properties: Json, cluster: Json, policy: Json | None) -> Pool:
    """Return the pool that these properties describe, of any size. Raises Refusal if GKE offers no such slice."""
    config = properties.get("nodeConfig", {})
    smallest = properties.get("autoscaling", {}).get("minNodeCount", 0)
    return Pool(
        cluster=cluster["name"],
        name=properties["name"],
        machine_type=config.get("machineType", _DEFAULT_MACHINE_TYPE),
        zones=zones(properties, cluster),
        nodes_per_zone=int(properties.get("nodeCount", properties.get("initialNodeCount", smallest))),
        version=cluster.get("masterVersion", ""),
        shape=_shape(properties, policy),
        labels=config.get("labels", {}),
        taints=tuple((taint["key"], taint["value"], taint["effect"]) for taint in config.get("taints", [])),
        spot=config.get("spot", False),
        flex_start=config.get("flexStart", False),
    )


def zones(properties: Json, cluster: Json) -> tuple[str, ...]:
    """Return the zones that the pool has nodes in."""
    location = str(properties.get("location", cluster["location"]))
    named = properties.get("nodeLocations") or cluster.get("nodeLocations")
    if named:
        return tuple(named)
    return (location,) if _is_zone(location) else tuple(f"{location}-{letter}" for letter in "abc")


def _is_zone(location: str) -> bool:
    return location.count("-") > 1


def _shape(properties: Json, policy: Json | None) -> SliceShape | None:
    machine_type = properties.get("nodeConfig", {}).get("machineType", _DEFAULT_MACHINE_TYPE)
    placement = properties.get("placementPolicy", {})
    topology = placement.get("tpuTopology") or (policy or {}).get("workloadPolicy", {}).get("acceleratorTopology")
    shapes = [shape for shape in all_shapes() if shape.machine_type == machine_type]
    if not shapes:
        if topology or machine_type.startswith(("ct", "tpu")):
            raise _invalid(f'Machine type "{machine_type}" does not support TPU topology "{topology or ""}".')
        return None
    if topology is None:
        single_host = next(shape for shape in shapes if not shape.multi_host)
        if placement.get("policyName"):
            message = "does not support TPU topology with group placement policy and workload policy at the same time"
            raise _invalid(message)
        if placement:
            raise _invalid(
                f'Placement policy is not supported for single-host TPU slices: machine type "{machine_type}" without'
                f' a topology is a single-host "{single_host.topology}" slice; set tpu_topology or remove'
                " placement_policy."
            )
        return single_host
    try:
        shape = shape_of(machine_type, topology)
    except ValueError as error:
        raise _invalid(f'Invalid TPU topology "{topology}" for machine type "{machine_type}": {error}.') from None
    _require_placement(placement, shape, policy)
    return shape


def _require_placement(placement: Json, shape: SliceShape, policy: Json | None) -> None:
    if not shape.multi_host:
        raise _invalid(
            f'Placement policy is not supported for single-host TPU slices: "{shape.topology}" is one'
            f' "{shape.machine_type}" host; remove placement_policy.'
        )
    if shape.workload_policy_required and not placement.get("policyName"):
        raise Refusal(
            f"Creation of a managed instance group with {shape.machine_type} machine type with placement policy is not"
            " supported. Use workload policy instead."
        )
    if not shape.workload_policy_required and placement.get("type") != "COMPACT":
        raise _invalid(
            f'A multi-host TPU slice needs placement policy type "COMPACT", got "{placement.get("type", "")}"'
            f' with TPU topology "{shape.topology}".'
        )
    wanted = (policy or {}).get("workloadPolicy", {}).get("acceleratorTopology", shape.topology)
    if wanted != shape.topology:
        raise _invalid(f'TPU topology "{shape.topology}" differs from "{wanted}" of the workload policy.')


def _require_tpu_pool(pool: Pool, shape: SliceShape, properties: Json) -> None:
    label = pool.labels.get(TOPOLOGY_LABEL, shape.topology)
    if label != shape.topology:
        raise _invalid(
            f'Node label {TOPOLOGY_LABEL}="{label}" on a pool whose slices are "{shape.topology}": a multi-host slice'
            f' needs placement_policy with type "COMPACT" and tpu_topology "{label}".'
        )
    config = properties.get("nodeConfig", {})
    disk = config.get("bootDisk", {}).get("diskType") or config.get("diskType", shape.boot_disk_types[0])
    if disk not in shape.boot_disk_types:
        raise _invalid(f"{disk} disk type cannot be used by {pool.machine_type} machine type.")
    _require_flex_start(pool, shape, properties)
    _require_one_reservation(config.get("reservationAffinity", {}))
    if shape.multi_host:
        _require_gang(pool, shape, properties)


def _require_flex_start(pool: Pool, shape: SliceShape, properties: Json) -> None:
    if not pool.flex_start:
        if properties.get("queuedProvisioning", {}).get("enabled"):
            raise _invalid("Queued_provisioning doesn't support TPUs")
        return
    config = properties["nodeConfig"]
    affinity = config.get("reservationAffinity", {}).get("consumeReservationType", "NO_RESERVATION")
    duration = config.get("maxRunDuration", "600s")
    allowed = re.fullmatch(r"\d+s", duration) and 600 <= int(duration[:-1]) <= 604800
    refusals = {
        "Flex start node pools require autoscaling enabled.": "autoscaling" not in properties,
        "Flex start node pools require initial node count to be set to 0.": pool.nodes_per_zone,
        f"Flex start is not supported for machine type {pool.machine_type}.": not shape.flex_start,
        "Flex start node pools can use neither spot VMs nor reservations.": pool.spot or affinity != "NO_RESERVATION",
        "Flex start node pools require node auto-repair to be disabled.": at(properties, "management.autoRepair"),
        f'Invalid max run duration "{duration}": must be between 600s and 604800s.': not allowed,
    }
    for message, refused in refusals.items():
        if refused:
            raise _invalid(message)


def _require_one_reservation(affinity: Json) -> None:
    specific = affinity.get("consumeReservationType") == "SPECIFIC_RESERVATION"
    named = affinity.get("key") == "compute.googleapis.com/reservation-name" and len(affinity.get("values", [])) == 1
    if specific and not named:
        raise _invalid(
            "A specific reservation needs key compute.googleapis.com/reservation-name and exactly one value."
        )


def _require_gang(pool: Pool, shape: SliceShape, properties: Json) -> None:
    total = pool.nodes_per_zone * len(pool.zones)
    if total not in (0, shape.hosts):
        raise Refusal(
            f"Google Compute Engine: Invalid value for field 'resource.resizeBy': '{total}'. Requested invalid"
            f" target size '{total}' for a Managed Instance Group in the gang mode of size '{shape.hosts}'."
            " Should be equal to the gang size."
        )
    maximum = properties.get("autoscaling", {}).get("maxNodeCount", 0)
    if "autoscaling" in properties and maximum != shape.hosts:
        raise _invalid(
            f'Maximum node count {maximum} is not a valid size of TPU pod slice with topology "{shape.topology}"'
        )


def _invalid(message: str) -> Refusal:
    return Refusal(f"googleapi: Error 400: {message}, badRequest")
