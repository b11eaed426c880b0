"""Rules for location and slices: region, zones, addresses, what GKE offers, and the size of the system nodes."""

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network
from itertools import combinations

from infra.stack.controllers import controller_request, machine_size
from infra.stack.settings.errors import FieldError
from infra.stack.settings.jobs import AnyJob
from infra.stack.settings.schema import SLICE_PODS_PER_NODE, SYSTEM_PODS_PER_NODE, Cloud, SliceGroup
from infra.stack.settings.sections import each
from infra.stack.settings.stack import Draft, Section, Shapes, join_names
from infra.stack.settings.values import ZONES, is_zone
from infra.stack.tpu import (
    BLOCK_GENERATION,
    FLEX_START_GENERATIONS,
    all_shapes,
    interpret,
    nearest_with_flex_start,
    resolve,
)

type _Ranges = Mapping[str, IPv4Network]
"""Address ranges that the stack uses, by setting."""

SUBNET_OVERHEAD = 4
"""Number of addresses of each subnet that Google Cloud reserves (https://cloud.google.com/vpc/docs/subnets)."""
CONTROL_PLANE_ADDRESSES = 1
"""The endpoint of the control plane is in the subnet of the nodes."""
SPARE_SYSTEM_NODES = 1
"""Additional nodes in an upgrade of the system pool, which creates a new node before it removes an old one."""

_ADDRESS_BITS = 32
_PREFIXES = {"nodes": (8, 29), "pods": (9, 21), "services": (16, 27), "second_nodes": (8, 29)}
"""Prefix of the widest and the narrowest range that GKE accepts, by setting
(https://cloud.google.com/kubernetes-engine/docs/concepts/alias-ips#cluster_sizing)."""
_PRIVATE = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "240.0.0.0/4")))
"""Private blocks in which a subnet may be (https://cloud.google.com/vpc/docs/subnets#valid-ranges)."""
_CONTROLLERS = 2
_SHARE = 2
"""The controllers may use one in this many parts of a machine. The rest is for GKE's own pods."""


def check(draft: Draft, shapes: Shapes) -> Iterator[FieldError]:
    """Yield the errors of location, addresses, system nodes and placement."""
    yield from each(
        _zone("cloud.zone", draft, draft.cloud),
        *(_zone(f"slices.{name}.zone", draft, group) for name, group in draft.slices.items()),
        _authorized_networks(draft),
        _encryption_key(draft),
        _ranges(draft, shapes),
        _controllers(draft, shapes),
        _placement(draft),
    )


def _ranges(draft: Draft, shapes: Shapes) -> Iterator[FieldError]:
    ranges = _used_ranges(draft)
    yield from each(_sizes(ranges), _overlaps(ranges), _room(draft, shapes, ranges))


def check_offered(path: str, group: Section) -> FieldError | None:
    """Return the error of a group whose slices do not exist."""
    generation, topology, machine_type = (group.get(key) for key in ("generation", "topology", "machine_type"))
    if not isinstance(generation, str) or not isinstance(topology, str | int):
        return None
    if isinstance(topology, bool) or not isinstance(machine_type, str | None):
        return None
    try:
        resolve(*interpret(generation, str(topology)), machine_type)
    except ValueError as error:
        got = " ".join(filter(None, (generation, str(topology), machine_type)))
        return FieldError(path, "a slice that GKE offers", got, str(error))
    return None


def check_slices(name: str, draft: Draft) -> Iterator[FieldError]:
    """Yield the errors of a slice group that GKE offers: its capacity and its second network."""
    yield from each(_capacity(f"slices.{name}.capacity", draft.slices[name]), _second_network(name, draft))


def _capacity(path: str, group: SliceGroup) -> Iterator[FieldError]:
    shape, capacity = group.shape, group.capacity
    if capacity.on_request and not shape.flex_start:
        nearest = nearest_with_flex_start(shape)
        yield FieldError(
            path,
            f"on-demand, spot or a reservation, since Compute Engine offers flex-start only for"
            f" {', '.join(FLEX_START_GENERATIONS)}",
            f"{capacity.kind} for {shape.generation}",
            f"write spot, or choose {nearest.generation} {nearest.topology}",
        )
    if capacity.part and group.generation != BLOCK_GENERATION:
        yield FieldError(
            path,
            f"a reservation without block, since only those of {BLOCK_GENERATION} have blocks",
            f"a {capacity.part[0]} for {group.generation}",
            "remove block and sub_block; the reservation's name is enough",
        )
    elif capacity.part and group.chips > capacity.part[1]:
        part, chips = capacity.part
        yield FieldError(
            f"{path}.{part}",
            f"slices that fit the {chips} chips of a {part}",
            f"{group.chips} chips ({group.count} x {group.topology})",
            f"remove {part}, lower count or choose a smaller topology",
        )


def _second_network(name: str, draft: Draft) -> Iterator[FieldError]:
    group, path = draft.slices[name], f"slices.{name}.second_network"
    if not group.second_network:
        return
    if not group.shape.accelerator_nics:
        machines = sorted({shape.machine_type for shape in all_shapes() if shape.accelerator_nics})
        expected = f"a machine type with a second network interface: {', '.join(machines)}"
        yield FieldError(path, expected, group.shape.machine_type, "remove it or choose another generation")
    yield from each(*(_needs_host_network(path, name, job_path, job) for job_path, job in draft.readable_jobs))


def _needs_host_network(path: str, group: str, job_path: str, job: AnyJob) -> Iterator[FieldError]:
    if group in job.slices.groups and not job.host_network:
        yield FieldError(
            path,
            "a job on the network of its hosts, since pods on their own network cannot use the second interface",
            f"job {job.name} without host_network",
            f"write {job_path}.host_network: true or remove it",
        )


def _zone(path: str, draft: Draft, section: Cloud | SliceGroup | None) -> Iterator[FieldError]:
    if draft.cloud is None or section is None or section.zone is None:
        return
    region, zone = draft.cloud.region, section.zone
    if not is_zone(zone, region):
        known = ", ".join(ZONES.get(region, (f"{region}-b",)))
        expected = f"a zone of {region}, {'which has ' if region in ZONES else 'such as '}{known}"
        yield FieldError(path, expected, repr(zone), f"change {path} or cloud.region")


def _authorized_networks(draft: Draft) -> Iterator[FieldError]:
    for name, cidr in draft.cluster.authorized_networks.items() if draft.cluster else ():
        if IPv4Network(cidr).prefixlen == 0:
            yield FieldError(
                f"cluster.authorized_networks.{name}",
                "the network of the people who use the cluster",
                f"{cidr}, which is every address",
                "narrow it, or remove it and use the DNS endpoint, which is reachable from any network",
            )


def _encryption_key(draft: Draft) -> Iterator[FieldError]:
    key = draft.cluster.encryption_key if draft.cluster else None
    # GKE accepts only keys of its own region, not even those of the location `global`.
    if key and draft.cloud and f"/locations/{draft.cloud.region}/" not in key:
        expected = f"a key in {draft.cloud.region}, the region of the cluster"
        yield FieldError("cluster.encryption_key", expected, key, "create one there and write its name")


def _used_ranges(draft: Draft) -> _Ranges:
    if draft.network.existing or (draft.cluster and draft.cluster.existing):
        return {}
    second = any(group.second_network for group in draft.slices.values())
    return {name: IPv4Network(getattr(draft.network, name)) for name in _PREFIXES if name != "second_nodes" or second}


def _sizes(ranges: _Ranges) -> Iterator[FieldError]:
    for name, network in ranges.items():
        widest, narrowest = _PREFIXES[name]
        if not widest <= network.prefixlen <= narrowest:
            expected = f"a range from /{narrowest} to /{widest}, the sizes that GKE accepts"
            yield FieldError(f"network.{name}", expected, str(network), "choose a prefix between them")
        if not any(network.subnet_of(block) for block in _PRIVATE):
            yield FieldError(
                f"network.{name}",
                f"a part of one of the private blocks {', '.join(map(str, _PRIVATE))}",
                str(network),
                "choose a private range: with this one, other people's addresses on the internet become unreachable",
            )


def _overlaps(ranges: _Ranges) -> Iterator[FieldError]:
    for (first, taken), (second, network) in combinations(ranges.items(), 2):
        if network.overlaps(taken):
            expected = f"a range that shares no address with network.{first} ({taken})"
            yield FieldError(f"network.{second}", expected, str(network), "move one of them")


def _room(draft: Draft, shapes: Shapes, ranges: _Ranges) -> Iterator[FieldError]:
    hosts = {name: draft.slices[name].hosts for name in shapes}
    second = sum(count for name, count in hosts.items() if draft.slices[name].second_network)
    total, stays = sum(hosts.values()), draft.cluster.system_nodes if draft.cluster else 0
    system, own = stays + SPARE_SYSTEM_NODES, SUBNET_OVERHEAD + CONTROL_PLANE_ADDRESSES
    everyone = f"{total} TPU hosts, {stays} system nodes and {SPARE_SYSTEM_NODES} more in an upgrade"
    few = f"{second} TPU hosts and {SUBNET_OVERHEAD} of Google's own"
    yield from _fits(ranges, "nodes", total + system + own, f"{everyone} and {own} of Google's own")
    yield from _fits(ranges, "pods", pod_addresses(total, system), f"blocks for pods of {everyone}")
    yield from _fits(ranges, "second_nodes", second + SUBNET_OVERHEAD, few)


def _fits(ranges: _Ranges, name: str, needed: int, what: str) -> Iterator[FieldError]:
    prefix, fewer = narrowest_prefix(needed), "lower the count of a slice group"
    if name in ranges and ranges[name].num_addresses < needed:
        yield FieldError(
            f"network.{name}",
            f"{needed} addresses: {what}",
            f"the {ranges[name].num_addresses} of {ranges[name]}",
            f"write a /{prefix} or wider, or {fewer}" if prefix >= _PREFIXES[name][0] else fewer,
        )


def pod_block(pods_per_node: int) -> int:
    """Return the number of addresses of a node's pods: twice its maximum number of pods, rounded up to a power of two.

    https://cloud.google.com/kubernetes-engine/docs/how-to/flexible-pod-cidr
    """
    return 1 << (2 * pods_per_node - 1).bit_length()


def pod_addresses(hosts: int, system_nodes: int) -> int:
    """Return the number of addresses that the pods of these TPU hosts and system nodes use."""
    return hosts * pod_block(SLICE_PODS_PER_NODE) + system_nodes * pod_block(SYSTEM_PODS_PER_NODE)


def narrowest_prefix(addresses: int) -> int:
    """Return the prefix length of the smallest range with this many addresses."""
    return _ADDRESS_BITS - (addresses - 1).bit_length()


def _controllers(draft: Draft, shapes: Shapes) -> Iterator[FieldError]:
    machine = machine_size(draft.cluster.system_machine_type) if draft.cluster else None
    if draft.cluster is None or draft.cluster.existing or machine is None:
        return
    hosts = sum(draft.slices[name].hosts for name in shapes)
    on_one_node = _CONTROLLERS if draft.cluster.system_nodes == 1 else 1
    wanted = controller_request(hosts)
    millicores, memory_mib = wanted.millicores * on_one_node, wanted.memory_mib * on_one_node
    if millicores * _SHARE > machine.millicores or memory_mib * _SHARE > machine.memory_mib:
        who = "JobSet's and Kueue's controllers" if on_one_node > 1 else "the controllers of JobSet and Kueue each"
        yield FieldError(
            "cluster.system_machine_type",
            f"a machine with at least {millicores * _SHARE / 1000:g} vCPUs and {memory_mib * _SHARE / 1024:.1f} GiB,"
            f" half of which {who} request for {hosts} TPU hosts",
            draft.cluster.system_machine_type,
            "write a larger one",
        )


def _placement(draft: Draft) -> Iterator[FieldError]:
    placement = draft.scheduling.placement
    on_request = [name for name, group in draft.slices.items() if group.capacity.on_request]
    if placement == "topology-aware" and on_request:
        yield FieldError(
            "scheduling.placement",
            f"exclusive-topology, since nodes of {join_names(on_request)} do not exist yet when Kueue counts",
            placement,
            f"write exclusive-topology, or another capacity for {join_names(on_request)}",
        )
