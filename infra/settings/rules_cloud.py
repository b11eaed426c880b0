"""Rules of the place and the slices: region, zones, addresses, what GKE offers, and the size of the system nodes."""

import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network
from itertools import combinations

from infra.controllers import controller_request, machine_size
from infra.settings.errors import Fault
from infra.settings.schema import SLICE_PODS_PER_NODE, SYSTEM_PODS_PER_NODE, SliceGroup
from infra.settings.stack import Draft, Shapes, Written, listed
from infra.tpu import BLOCK_GENERATION, FLEX_START_GENERATIONS, all_shapes, meant, nearest_with_flex_start, resolve

type _Ranges = Mapping[str, IPv4Network]
"""The ranges that the stack uses, by setting."""


_PREFIXES = {"nodes": (8, 29), "pods": (9, 21), "services": (16, 27), "second_nodes": (8, 29)}
"""Widest and narrowest range that GKE takes, by setting
(https://cloud.google.com/kubernetes-engine/docs/concepts/alias-ips#cluster_sizing)."""


_PRIVATE = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "240.0.0.0/4")))
"""Blocks that nobody on the internet has and a subnet may lie in
(https://cloud.google.com/vpc/docs/subnets#valid-ranges)."""


def check_place(draft: Draft, shapes: Shapes) -> Iterator[Fault]:
    """Faults of the sections `cloud` and `network`, of the groups' zones, and of the addresses and key of `cluster`."""
    yield from _zones(draft)
    yield from _authorized_networks(draft)
    yield from _encryption_key(draft)
    ranges = _used_ranges(draft)
    yield from _kinds(ranges)
    yield from _overlaps(ranges)
    yield from _room(draft, shapes, ranges)


def _zones(draft: Draft) -> Iterator[Fault]:
    if draft.cloud is None:
        return
    region = draft.cloud.region
    of_groups = {f"slices.{name}.zone": group.zone for name, group in draft.slices.items() if group.zone is not None}
    for path, zone in {"cloud.zone": draft.cloud.zone, **of_groups}.items():
        if not re.fullmatch(rf"{re.escape(region)}-[a-z0-9]+", zone):
            yield Fault(path, f"a zone of {region}, such as {region}-b", repr(zone), f"change {path} or cloud.region")


def _authorized_networks(draft: Draft) -> Iterator[Fault]:
    for name, cidr in draft.cluster.authorized_networks.items() if draft.cluster else ():
        if IPv4Network(cidr).prefixlen == 0:
            yield Fault(
                f"cluster.authorized_networks.{name}",
                "the network of people who use the cluster",
                f"{cidr}, which is everyone",
                "narrow it, or remove it and use the DNS endpoint, which any network reaches",
            )


def _encryption_key(draft: Draft) -> Iterator[Fault]:
    key = draft.cluster.encryption_key if draft.cluster else None
    # GKE takes keys of its own region alone, not even those of the location `global`.
    if key and draft.cloud and f"/locations/{draft.cloud.region}/" not in key:
        expected = f"a key in {draft.cloud.region}, the region of the cluster"
        yield Fault("cluster.encryption_key", expected, key, "make one there and name it")


def _used_ranges(draft: Draft) -> _Ranges:
    names = [*_PREFIXES] if _groups_on_second_network(draft) else [name for name in _PREFIXES if name != "second_nodes"]
    return {name: IPv4Network(getattr(draft.network, name)) for name in names}


def _groups_on_second_network(draft: Draft) -> list[str]:
    return [name for name, group in draft.slices.items() if group.second_network]


def _kinds(ranges: _Ranges) -> Iterator[Fault]:
    for name, network in ranges.items():
        widest, narrowest = _PREFIXES[name]
        if not widest <= network.prefixlen <= narrowest:
            yield Fault(
                f"network.{name}",
                f"a range from /{narrowest} to /{widest}, the sizes that GKE takes",
                str(network),
                "choose a prefix between them",
            )
        if not any(network.subnet_of(block) for block in _PRIVATE):
            yield Fault(
                f"network.{name}",
                f"a part of one of the private blocks {', '.join(map(str, _PRIVATE))}",
                str(network),
                "choose a private range: addresses of others on the internet could not be reached any more",
            )


def _overlaps(ranges: _Ranges) -> Iterator[Fault]:
    for (first, taken), (second, network) in combinations(ranges.items(), 2):
        if network.overlaps(taken):
            yield Fault(
                f"network.{second}",
                f"a range that shares no address with network.{first} ({taken})",
                str(network),
                "move one of them",
            )


def _room(draft: Draft, shapes: Shapes, ranges: _Ranges) -> Iterator[Fault]:
    """Whether all nodes have an address, and all their pods."""
    by_group = {name: draft.slices[name].hosts for name in shapes}
    hosts = sum(by_group.values())
    second = sum(by_group.get(name, 0) for name in _groups_on_second_network(draft))
    stays = draft.cluster.system_nodes if draft.cluster else 0
    system = stays + SPARE_SYSTEM_NODES
    own = SUBNET_OVERHEAD + CONTROL_PLANE_ADDRESSES
    everyone = f"{hosts} TPU hosts, {stays} system nodes and {SPARE_SYSTEM_NODES} more in an upgrade"
    few = f"{second} TPU hosts and {SUBNET_OVERHEAD} of Google's own"
    yield from _fits(ranges, "nodes", hosts + system + own, f"{everyone} and {own} of Google's own")
    yield from _fits(ranges, "pods", pod_addresses(hosts, system), f"blocks for pods of {everyone}")
    yield from _fits(ranges, "second_nodes", second + SUBNET_OVERHEAD, few)


def _fits(ranges: _Ranges, name: str, needed: int, what: str) -> Iterator[Fault]:
    prefix, fewer = narrowest_prefix(needed), "lower the count of a slice group"
    if name in ranges and ranges[name].num_addresses < needed:
        yield Fault(
            f"network.{name}",
            f"{needed} addresses: {what}",
            f"the {ranges[name].num_addresses} of {ranges[name]}",
            f"write a /{prefix} or wider, or {fewer}" if prefix >= _PREFIXES[name][0] else fewer,
        )


SUBNET_OVERHEAD = 4
"""Addresses of each subnet that Google Cloud keeps (https://cloud.google.com/vpc/docs/subnets)."""


CONTROL_PLANE_ADDRESSES = 1
"""Its endpoint lies in the subnet of the nodes."""


SPARE_SYSTEM_NODES = 1
"""An upgrade of the system pool makes a new node before it removes an old one."""


_ADDRESS_BITS = 32


def pod_block(pods_per_node: int) -> int:
    """Addresses of the block that a node has for its pods: twice as many as it may have, as a power of two.

    https://cloud.google.com/kubernetes-engine/docs/how-to/flexible-pod-cidr
    """
    return 1 << (2 * pods_per_node - 1).bit_length()


def pod_addresses(hosts: int, system_nodes: int) -> int:
    """Addresses that the pods of so many TPU hosts and system nodes take."""
    return hosts * pod_block(SLICE_PODS_PER_NODE) + system_nodes * pod_block(SYSTEM_PODS_PER_NODE)


def narrowest_prefix(addresses: int) -> int:
    """Length of the prefix of the smallest range with so many addresses."""
    return _ADDRESS_BITS - (addresses - 1).bit_length()


def offered(path: str, group: Written) -> Fault | None:
    """The fault of a group whose slices do not exist."""
    generation, topology, machine_type = (group.get(key) for key in ("generation", "topology", "machine_type"))
    if not isinstance(generation, str) or not isinstance(topology, str | int):
        return None
    if isinstance(topology, bool) or not isinstance(machine_type, str | None):
        return None
    asked = " ".join(filter(None, (generation, str(topology), machine_type)))
    understood = meant(generation, str(topology))
    words = zip(("generation", "topology"), understood, (generation, topology), strict=True)
    other = ", ".join(f"{key}: {word}" for key, word, written in words if word != written)
    try:
        shape = resolve(*understood, machine_type)
    except ValueError as error:
        return Fault(path, "a slice that GKE offers", asked, str(error), other)
    if not other:
        return None
    fix = f"write it so: {shape.accelerator_type} has {shape.chips} chips on {shape.hosts} hosts"
    return Fault(path, "a slice that GKE offers", asked, fix, other)


def check_slices(path: str, group: SliceGroup) -> Iterator[Fault]:
    """Faults of one slice group that GKE offers."""
    yield from _capacity(f"{path}.capacity", group)


def second_network(name: str, draft: Draft) -> Iterator[Fault]:
    """Faults of a group's wish for the second network interface."""
    group, path = draft.slices[name], f"slices.{name}.second_network"
    if not group.second_network:
        return
    if not group.shape.accelerator_nics:
        machines = sorted({shape.machine_type for shape in all_shapes() if shape.accelerator_nics})
        yield Fault(
            path,
            f"a machine type with a second network interface: {', '.join(machines)}",
            group.shape.machine_type,
            "remove it or choose another generation",
        )
    for job_path, job in draft.readable_jobs:
        if name in job.slices.groups and not job.host_network:
            yield Fault(
                path,
                "a job that uses the interfaces of its hosts, for pods of their own network never see the second",
                f"job {job.name} without host_network",
                f"write {job_path}.host_network: true or remove it",
            )


def _capacity(path: str, group: SliceGroup) -> Iterator[Fault]:
    shape, capacity = group.shape, group.capacity
    if capacity.on_request and not shape.flex_start:
        nearest = nearest_with_flex_start(shape)
        yield Fault(
            path,
            f"on-demand, spot or a reservation, since Compute Engine has flex-start for"
            f" {', '.join(FLEX_START_GENERATIONS)} alone",
            f"{capacity.kind} for {shape.generation}",
            f"write spot, or choose {nearest.generation} {nearest.topology}",
        )
    if capacity.part:
        yield from _block(path, group, *capacity.part)


def _block(path: str, group: SliceGroup, part: str, chips: int) -> Iterator[Fault]:
    if group.generation != BLOCK_GENERATION:
        yield Fault(
            path,
            f"a reservation without block, since those of {BLOCK_GENERATION} alone have blocks",
            f"a {part} for {group.generation}",
            "remove block and sub_block; the reservation's name is enough",
        )
        return
    if group.chips > chips:
        yield Fault(
            f"{path}.{part}",
            f"slices that fit the {chips} chips of a {part}",
            f"{group.chips} chips ({group.count} x {group.topology})",
            f"remove {part}, lower count or choose a smaller topology",
        )


_CONTROLLERS = 2


_SHARE = 2
"""One part of so many of a machine is theirs; the rest is GKE's own."""


def check_controllers(draft: Draft, shapes: Shapes) -> Iterator[Fault]:
    """The fault of a machine type that is too small for the number of hosts."""
    machine = machine_size(draft.cluster.system_machine_type) if draft.cluster else None
    if draft.cluster is None or machine is None:
        return
    hosts = sum(draft.slices[name].hosts for name in shapes)
    on_one_node = _CONTROLLERS if draft.cluster.system_nodes == 1 else 1
    wanted = controller_request(hosts)
    millicores, memory_mib = wanted.millicores * on_one_node, wanted.memory_mib * on_one_node
    if millicores * _SHARE > machine.millicores or memory_mib * _SHARE > machine.memory_mib:
        told = "JobSet's and Kueue's controllers" if on_one_node > 1 else "the controllers of JobSet and Kueue each"
        yield Fault(
            "cluster.system_machine_type",
            f"a machine with at least {millicores * _SHARE / 1000:g} vCPUs and {memory_mib * _SHARE / 1024:.1f} GiB,"
            f" half of which {told} request for {hosts} TPU hosts",
            draft.cluster.system_machine_type,
            "write a larger one",
        )


def check_scheduling(draft: Draft) -> Iterator[Fault]:
    """Faults of the section `scheduling`."""
    placement = draft.scheduling.placement
    on_request = [name for name, group in draft.slices.items() if group.capacity.on_request]
    if placement == "topology-aware" and on_request:
        yield Fault(
            "scheduling.placement",
            f"exclusive-topology, since nodes of {listed(on_request)} come on request and Kueue counts what exists",
            placement,
            f"write exclusive-topology, or another capacity for {listed(on_request)}",
        )


def check_environment(draft: Draft) -> Iterator[Fault]:
    """Faults of a stack that is an environment, its end aside."""
    if draft.environment is None or draft.cluster is None:
        return
    if draft.cluster.deletion_protection:
        yield Fault(
            "cluster.deletion_protection",
            "false, since an environment is destroyed when its time has come",
            "true",
            "set it false, or remove the section environment",
        )
    for name, group in draft.slices.items():
        if group.capacity.reserved:
            yield Fault(
                f"slices.{name}.capacity",
                "capacity that an environment takes from nobody: on-demand, spot, flex-start or queued",
                f"the reservation {group.capacity.reserved}, which others count on",
                "make the environment from a stack without reserved chips",
            )
    yield from _own_namespaces(draft, f"{draft.cluster.name}-")


def _own_namespaces(draft: Draft, prefix: str) -> Iterator[Fault]:
    """Google knows pods by project, namespace and service account, not by cluster."""
    for name, team in draft.teams.items():
        if not team.namespace.startswith(prefix):
            yield Fault(
                f"teams.{name}.namespace",
                f"a name that begins with {prefix}, or pods of the project's other clusters would have the same rights",
                repr(team.namespace),
                f"write {prefix}{team.namespace}",
            )
