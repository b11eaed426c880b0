"""Rules of the place: region, zones and addresses."""

import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network
from itertools import combinations

from infra.addresses import (
    CONTROL_PLANE_ADDRESSES,
    SPARE_SYSTEM_NODES,
    SUBNET_OVERHEAD,
    narrowest_prefix,
    pod_addresses,
)
from infra.faults import Fault
from infra.rules.draft import Draft, Shapes

type _Ranges = Mapping[str, IPv4Network]
"""The ranges that the stack uses, by setting."""

_PREFIXES = {"nodes": (8, 29), "pods": (9, 21), "services": (16, 27), "second_nodes": (8, 29)}
"""Widest and narrowest range that GKE takes, by setting
(https://cloud.google.com/kubernetes-engine/docs/concepts/alias-ips#cluster_sizing)."""

_PRIVATE = tuple(map(IPv4Network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "240.0.0.0/4")))
"""Blocks that nobody on the internet has and a subnet may lie in
(https://cloud.google.com/vpc/docs/subnets#valid-ranges)."""


def check(draft: Draft, shapes: Shapes) -> Iterator[Fault]:
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
