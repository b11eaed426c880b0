"""Which node pools GKE accepts, in the words of its API; what they are made of. Pure.

The texts are those that people report from live clusters; where nobody has, they are our own. The
rules are in the tables of accelerators and capacity.
"""

import re

from infra import tpu
from infra.names import TOPOLOGY_LABEL
from infra.tpu import SliceShape
from sandbox.providers.nodes import Pool
from sandbox.providers.plugin import Refusal
from sandbox.providers.values import Object, has_unknown

_DEFAULT_MACHINE_TYPE = "e2-medium"
_DECISIVE = ("nodeConfig", "placementPolicy", "nodeCount", "initialNodeCount", "autoscaling", "nodeLocations")


def is_decided(properties: Object, cluster: Object | None) -> bool:
    """Whether a preview knows all that the rules ask for; the zones may be those of a cluster yet to come."""
    zones_known = cluster is not None or "nodeLocations" in properties or _is_zone(properties.get("location", ""))
    return zones_known and not any(has_unknown(properties.get(key)) for key in _DECISIVE)


def require_valid(properties: Object, cluster: Object, policy: Object | None) -> None:
    """Refuse a pool that GKE would not create, or not resize so.

    `cluster` and `policy` are the cluster and the workload policy that it names.

    Raises:
        Refusal: in the API's words.
    """
    pool = pool_of(properties, cluster, policy)
    _require_zones_of_the_region(pool, str(cluster["location"]))
    if pool.shape is not None:
        _require_tpu_pool(pool, pool.shape, properties)


def pool_of(properties: Object, cluster: Object, policy: Object | None) -> Pool:
    """The pool that these properties describe, of whatever size.

    Raises:
        Refusal: there is no such slice.
    """
    config = properties.get("nodeConfig", {})
    return Pool(
        cluster=cluster["name"],
        name=properties["name"],
        machine_type=config.get("machineType", _DEFAULT_MACHINE_TYPE),
        zones=zones(properties, cluster),
        nodes_per_zone=_nodes_per_zone(properties),
        version=cluster.get("masterVersion", ""),
        shape=_shape(properties, policy),
        labels=config.get("labels", {}),
        taints=tuple((taint["key"], taint["value"], taint["effect"]) for taint in config.get("taints", [])),
        spot=config.get("spot", False),
        flex_start=config.get("flexStart", False),
    )


def zones(properties: Object, cluster: Object) -> tuple[str, ...]:
    """The zones that the pool has nodes in."""
    location = str(properties.get("location", cluster["location"]))
    named = properties.get("nodeLocations") or cluster.get("nodeLocations")
    if named:
        return tuple(named)
    return (location,) if _is_zone(location) else tuple(f"{location}-{letter}" for letter in "abc")


def _is_zone(location: str) -> bool:
    return location.count("-") > 1


def _require_zones_of_the_region(pool: Pool, location: str) -> None:
    """`location`: of the cluster, a region or a zone; empty in a preview that does not know it."""
    region = "-".join(location.split("-")[:2])
    foreign = [zone for zone in pool.zones if not zone.startswith(f"{region}-")]
    if location and foreign:
        raise _invalid(f'Node locations must be zones of region "{region}", got "{", ".join(foreign)}".')


def _shape(properties: Object, policy: Object | None) -> SliceShape | None:
    machine_type = properties.get("nodeConfig", {}).get("machineType", _DEFAULT_MACHINE_TYPE)
    placement = properties.get("placementPolicy", {})
    policy_topology = (policy or {}).get("workloadPolicy", {}).get("acceleratorTopology")
    topology = placement.get("tpuTopology") or policy_topology
    shapes = [shape for shape in tpu.all_shapes() if shape.machine_type == machine_type]
    if not shapes:
        if topology or machine_type.startswith(("ct", "tpu")):
            raise _invalid(f'Machine type "{machine_type}" does not support TPU topology "{topology or ""}".')
        return None
    if topology is None:
        single_host = next(shape for shape in shapes if not shape.multi_host)
        _require_no_placement(placement, single_host)
        return single_host
    try:
        shape = tpu.shape_of(machine_type, topology)
    except ValueError as error:
        message = f'Invalid TPU topology "{topology}" for machine type "{machine_type}"'
        raise _invalid(f"{message}: {error}.") from None
    _require_placement(placement, shape, policy)
    return shape


def _require_no_placement(placement: Object, shape: SliceShape) -> None:
    if placement.get("policyName"):
        raise _invalid("does not support TPU topology with group placement policy and workload policy at the same time")
    if placement:
        raise _invalid(
            f'Placement policy is not supported for single-host TPU slices: machine type "{shape.machine_type}" without'
            f' a topology is a single-host "{shape.topology}" slice; set tpu_topology or remove placement_policy.'
        )


def _require_placement(placement: Object, shape: SliceShape, policy: Object | None) -> None:
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


def _require_tpu_pool(pool: Pool, shape: SliceShape, properties: Object) -> None:
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


def _require_flex_start(pool: Pool, shape: SliceShape, properties: Object) -> None:
    if properties.get("queuedProvisioning", {}).get("enabled") and not pool.flex_start:
        raise _invalid("Queued_provisioning doesn't support TPUs")
    if pool.flex_start and "autoscaling" not in properties:
        raise _invalid("Flex start node pools require autoscaling enabled.")
    if pool.flex_start and pool.nodes_per_zone:
        raise _invalid("Flex start node pools require initial node count to be set to 0.")

    if pool.flex_start and not shape.flex_start:
        raise _invalid(f"Flex start is not supported for machine type {pool.machine_type}.")
    if pool.flex_start:
        _require_lone_provisioning_model(pool, properties)


def _require_one_reservation(affinity: Object) -> None:
    specific = affinity.get("consumeReservationType") == "SPECIFIC_RESERVATION"
    named = affinity.get("key") == "compute.googleapis.com/reservation-name" and len(affinity.get("values", [])) == 1
    if specific and not named:
        raise _invalid(
            "A specific reservation needs key compute.googleapis.com/reservation-name and exactly one value."
        )


def _require_lone_provisioning_model(pool: Pool, properties: Object) -> None:
    config = properties["nodeConfig"]
    affinity = config.get("reservationAffinity", {}).get("consumeReservationType", "NO_RESERVATION")
    if pool.spot or affinity != "NO_RESERVATION":
        raise _invalid("Flex start node pools can use neither spot VMs nor reservations.")
    if properties.get("management", {}).get("autoRepair"):
        raise _invalid("Flex start node pools require node auto-repair to be disabled.")
    duration = config.get("maxRunDuration", "600s")
    if not re.fullmatch(r"\d+s", duration) or not 600 <= int(duration[:-1]) <= 604800:
        raise _invalid(f'Invalid max run duration "{duration}": must be between 600s and 604800s.')


def _require_gang(pool: Pool, shape: SliceShape, properties: Object) -> None:
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


def _nodes_per_zone(properties: Object) -> int:
    smallest = properties.get("autoscaling", {}).get("minNodeCount", 0)
    return int(properties.get("nodeCount", properties.get("initialNodeCount", smallest)))


def _invalid(message: str) -> Refusal:
    return Refusal(f"googleapi: Error 400: {message}, badRequest")
