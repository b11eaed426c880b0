"""What the rules of security on the borders of namespaces are shown."""

from typing import Any

from infra.access import network_policy
from infra.settings.schema import Network
from policy.rule import Declared
from tests.policy.example import Example, declared
from tests.policy.examples.plan import configuration, having, namespace

_CLOSED = "closed-namespaces"
_NARROW = "narrow-network-policies"


def _policy(name: str) -> Declared:
    properties: Any = network_policy(name, Network(), monitored=True)
    return declared("kubernetes:networking.k8s.io/v1:NetworkPolicy", name, properties)


_NAMED = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
_COLLECTORS = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "gmp-system"}}}
_WIDE: tuple[Any, ...] = (
    {"ipBlock": {"cidr": "0.0.0.0/0"}},
    {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}},
    {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "any"}}},
)
"""Peers that are not named, each with ports."""


def _ingress(name: str, peer: Any, suffix: str = "") -> Declared:
    """A policy of a namespace that lets a peer in."""
    properties: Any = network_policy(name, Network(), monitored=True)
    ports = [{"protocol": "TCP", "port": 8482}]
    spec = {**properties["spec"], "ingress": [{"from": [peer], "ports": ports}]}
    return declared("kubernetes:networking.k8s.io/v1:NetworkPolicy", f"{name}{suffix}", {**properties, "spec": spec})


EXAMPLES: dict[str, Example] = {
    _CLOSED: Example(
        (namespace(_CLOSED), configuration(_CLOSED), _policy(_CLOSED)),
        (
            namespace(_CLOSED),
            configuration(_CLOSED),
            having(_policy(_CLOSED), ("spec", "policyTypes"), ["Ingress"]),
        ),
        f"expected a NetworkPolicy for all pods of namespace '{_CLOSED}', both ways, got none",
    ),
    _NARROW: Example(
        (namespace(_NARROW), configuration(_NARROW), _policy(_NARROW), _ingress("webhooks", _NAMED)),
        (
            namespace(_NARROW),
            configuration(_NARROW),
            *(_ingress(_NARROW, peer, f"-{index}") for index, peer in enumerate((*_WIDE, _NAMED))),
            *(_ingress("webhooks", peer, f"-{index}") for index, peer in enumerate(_WIDE)),
            having(_ingress(_NARROW, _COLLECTORS, "-collectors"), ("spec", "ingress", 0, "ports"), []),
            having(_policy(f"{_NARROW}-unnamed"), ("spec", "ingress"), [{}]),
            having(_policy(f"{_NARROW}-to"), ("spec", "egress", 0, "to"), [_WIDE[1]]),
            having(_policy(f"{_NARROW}-ports"), ("spec", "egress", 3, "ports"), []),
        ),
        "expected ingress of pods of the team's namespace, or of collectors by port, got that of others",
    ),
}
