"""What the namespaces of the cluster admit, and whom their pods talk to."""

from collections.abc import Iterator, Sequence
from typing import Any

from policy.kueue import team_namespaces
from policy.resources import at, every, namespace, object_name, of_kind
from policy.rule import Broken, Declared, ResourceRule, Rule, Severity, StackRule
from policy.rules.security.about import must

_ENFORCED = "pod-security.kubernetes.io/enforce"
_NAME = "kubernetes.io/metadata.name"
_COLLECTORS = "gmp-system"
"""Where GKE runs the collectors of metrics, and nobody else may run anything."""
_POLICIES = "https://kubernetes.io/docs/concepts/services-networking/network-policies/"


def _admits_plain_pods(found: Declared) -> Iterator[str]:
    level = (at(found.properties, "metadata", "labels") or {}).get(_ENFORCED)
    if level != "restricted":
        yield f"expected the label {_ENFORCED} restricted, got {level}"


def _closed(resources: Sequence[Declared]) -> Iterator[Broken]:
    closed = {namespace(policy) for policy in of_kind(resources, "NetworkPolicy") if _covers_all(policy)}
    for team in team_namespaces(resources):
        if object_name(team) not in closed:
            says = f"expected a NetworkPolicy for all pods of namespace {object_name(team)!r}, both ways, got none"
            yield Broken(says, team.urn)


def _covers_all(policy: Declared) -> bool:
    spec = at(policy.properties, "spec")
    return not at(spec, "podSelector") and {"Ingress", "Egress"} <= set(every(spec, "policyTypes"))


def _narrow(resources: Sequence[Declared]) -> Iterator[Broken]:
    teams = {object_name(team) for team in team_namespaces(resources)}
    for policy in of_kind(resources, "NetworkPolicy"):
        for says in (*_wide_ingress(policy, namespace(policy) in teams), *_wide_egress(policy)):
            yield Broken(says, policy.urn)


def _wide_ingress(policy: Declared, of_team: bool) -> Iterator[str]:
    for rule in every(policy.properties, "spec", "ingress"):
        peers = every(rule, "from")
        of_own = all(_is_of_own_namespace(peer) for peer in peers or [{}])
        if of_team and not (of_own or _is_of_collectors(rule)):
            yield "expected ingress of pods of the team's namespace, or of collectors by port, got that of others"
        elif not all(_is_of_own_namespace(peer) or _is_of_named_namespace(peer) for peer in peers or [{}]):
            yield "expected ingress of pods whose namespace is named, got that of any or of addresses"


def _wide_egress(policy: Declared) -> Iterator[str]:
    for rule in every(policy.properties, "spec", "egress"):
        peers = every(rule, "to")
        blocks = [peer for peer in peers if at(peer, "ipBlock") is not None]
        pods = [peer for peer in peers or [{}] if peer not in blocks]
        if not all(_is_of_own_namespace(peer) or _is_of_named_namespace(peer) for peer in pods):
            yield "expected egress to pods whose namespace is named, got that to every namespace"
        if blocks and not every(rule, "ports"):
            yield "expected egress to addresses to name ports, got all ports"


def _is_of_collectors(rule: Any) -> bool:
    peers = every(rule, "from")
    named = [at(peer, "namespaceSelector", "matchLabels", _NAME) for peer in peers]
    return bool(every(rule, "ports")) and set(named) == {_COLLECTORS}


def _is_of_own_namespace(peer: Any) -> bool:
    return set(peer) == {"podSelector"}


def _is_of_named_namespace(peer: Any) -> bool:
    """By the label that the API server gives each namespace; others are given by whoever may label one."""
    selector = at(peer, "namespaceSelector")
    listed = [each for each in every(selector, "matchExpressions") if at(each, "operator") == "In"]
    return at(selector, "matchLabels", _NAME) is not None or _NAME in {at(each, "key") for each in listed}


RULES: tuple[Rule, ...] = (
    ResourceRule(
        must(
            "pod-security",
            Severity.HIGH,
            "Namespaces admit no pod with rights on its host",
            why="Whoever may create pods in a namespace would otherwise be root on its nodes.",
            fix="Label the namespace with pod-security.kubernetes.io/enforce: restricted.",
            link="https://kubernetes.io/docs/concepts/security/pod-security-admission/",
        ),
        ("kubernetes:core/v1:Namespace",),
        _admits_plain_pods,
    ),
    StackRule(
        must(
            "closed-namespaces",
            Severity.HIGH,
            "Teams' namespaces are closed to each other's pods",
            why="JAX's coordinator takes whoever speaks to it for a host of the job, without a password.",
            fix="Declare a NetworkPolicy with an empty podSelector and both policyTypes in the namespace.",
            link=_POLICIES,
        ),
        _closed,
    ),
    StackRule(
        must(
            "narrow-network-policies",
            Severity.MEDIUM,
            "Network policies name whom they let through",
            why="Policies add up: one that names nobody opens what all others close.",
            fix="Name own pods in from, or collectors with a port, outside teams' namespaces others by name, and ports"
            " beside addresses in to.",
            link=_POLICIES,
        ),
        _narrow,
    ),
)
