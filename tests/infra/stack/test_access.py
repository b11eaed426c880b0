"""What members may do, and what pods reach."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from infra.stack.access import network_policy
from infra.stack.settings.schema import Network
from workloads.spec import METRICS_PORT

NETWORK = Network()


@dataclass(frozen=True)
class Peer:
    """One end of a connection, as a policy sees it: a pod, or an address that is no pod's."""

    address: str
    namespace: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict[str, str])


OTHER_HOST = Peer("10.16.1.5", "research")
OTHER_TEAM = Peer("10.16.2.5", "product-ml", {"jobset.sigs.k8s.io/jobset-name": "tiny"})
KUEUE = Peer("10.16.3.5", "kueue-system")
KUBE_DNS = Peer("10.16.3.6", "kube-system", {"k8s-app": "kube-dns"})
DNS_CACHE = Peer("10.16.3.7", "kube-system", {"k8s-app": "node-local-dns"})
METRICS_SERVER = Peer("10.16.3.8", "kube-system", {"k8s-app": "metrics-server"})
CACHE_ADDRESS = Peer("169.254.20.10")
METADATA = Peer("169.254.169.254")
COLLECTOR = Peer("10.16.3.9", "gmp-system", {"app.kubernetes.io/name": "collector"})
RULE_EVALUATOR = Peer("10.16.3.10", "gmp-system", {"app.kubernetes.io/name": "rule-evaluator"})
API_SERVER = Peer("10.0.0.2")
"""GKE's control plane has an address of the nodes' range."""
GOOGLE = Peer("142.250.80.10")
PRIVATE_GOOGLE = Peer("199.36.153.8")
SECOND_NETWORK = Peer("10.2.0.9")


def _is(selector: Any, peer: Peer) -> bool:
    if block := selector.get("ipBlock"):
        # Dataplane V2 knows pods by their labels alone; where they were known by address, it would be this.
        inside = ip_address(peer.address) in ip_network(block["cidr"])
        return inside and not any(ip_address(peer.address) in ip_network(cidr) for cidr in block.get("except", ()))
    if peer.namespace is None:
        return False
    wanted = selector.get("namespaceSelector", {"matchLabels": {"kubernetes.io/metadata.name": "research"}})
    in_namespace = wanted["matchLabels"].items() <= {"kubernetes.io/metadata.name": peer.namespace}.items()
    return in_namespace and all(_labelled(selector["podSelector"], peer))


def _labelled(selector: Any, peer: Peer) -> Iterator[bool]:
    yield selector.get("matchLabels", {}).items() <= peer.labels.items()
    for expression in selector.get("matchExpressions", ()):
        assert expression["operator"] == "In"
        yield peer.labels.get(expression["key"]) in expression["values"]


PORTS = frozenset({22, 53, 80, 443, 8080, 8431, 8471, 8476, 8482, 10250, 10255, 40_000, METRICS_PORT})


def _open(direction: str, side: str, peer: Peer, protocol: str = "TCP", *, monitored: bool = True) -> set[int]:
    """As https://kubernetes.io/docs/concepts/services-networking/network-policies/ says it."""
    spec: Any = network_policy("research", NETWORK, monitored=monitored)["spec"]
    assert direction.title() in spec["policyTypes"]
    rules = [rule for rule in spec[direction] if any(_is(selector, peer) for selector in rule[side])]
    return {
        port
        for port in PORTS
        if any("ports" not in rule or {"protocol": protocol, "port": port} in rule["ports"] for rule in rules)
    }


@pytest.mark.parametrize(
    ("peer", "reached", "reach"),
    [
        (OTHER_HOST, PORTS, PORTS),
        (OTHER_TEAM, (), ()),
        (KUEUE, (), ()),
        (METRICS_SERVER, (), ()),
        (KUBE_DNS, {53}, ()),
        (DNS_CACHE, {53}, ()),
        (CACHE_ADDRESS, {53, 443}, ()),
        (METADATA, {53, 80, 443, 8080}, ()),
        (API_SERVER, {443}, ()),
        (GOOGLE, {443}, ()),
        (PRIVATE_GOOGLE, {443}, ()),
        (SECOND_NETWORK, (), ()),
        (COLLECTOR, (), {METRICS_PORT}),
        (RULE_EVALUATOR, (), ()),
    ],
    ids=lambda value: value.address if isinstance(value, Peer) else "",
)
def test_pods_reach_these_ports_and_are_reached_on_these_and_no_others(
    peer: Peer, reached: Collection[int], reach: Collection[int]
) -> None:
    assert _open("egress", "to", peer) == set(reached)
    assert _open("ingress", "from", peer) == set(reach)


def test_names_are_also_resolved_by_udp() -> None:
    for resolver in (KUBE_DNS, DNS_CACHE, CACHE_ADDRESS, METADATA):
        assert _open("egress", "to", resolver, "UDP") == {53}


def test_without_monitoring_no_collector_reaches_a_pod() -> None:
    assert _open("ingress", "from", COLLECTOR, monitored=False) == set()
