"""Rules on access to and in the cluster: roles, namespaces, network policies, and objects that rules cannot read."""

from collections.abc import Iterator, Sequence
from typing import Any

from infra.stack.names import NAMESPACE_LABEL
from policy.rule import (
    CLUSTER,
    NAMESPACE,
    SERVICE,
    Declared,
    ResourceRule,
    Rule,
    StackRule,
    Violation,
    at,
    every,
    must_be,
    must_not_be,
    namespace,
    object_name,
    select_kind,
    show,
)
from policy.slices import team_namespaces

_RBAC = "kubernetes:rbac.authorization.k8s.io/v1"
_BINDINGS = (f"{_RBAC}:ClusterRoleBinding", f"{_RBAC}:RoleBinding")
_ROLES = (f"{_RBAC}:ClusterRole", f"{_RBAC}:Role")
_ROUTED = ("kubernetes:networking.k8s.io/*:Ingress", "kubernetes:gateway.networking.k8s.io/*:Gateway")
_UNSEEN = ("kubernetes:helm.sh/v3:Release", "kubernetes:*Patch", "kubernetes:*List")
_EVERYONE = ("system:anonymous", "system:unauthenticated", "system:authenticated", "system:serviceaccounts")
_ESCALATING_VERBS = ("bind", "escalate", "impersonate")
_COLLECTORS = "gmp-system"
"""Namespace in which only GKE runs pods, the collectors of metrics."""
_PRACTICES = "https://kubernetes.io/docs/concepts/security/rbac-good-practices/"
_GROUPS = "https://cloud.google.com/kubernetes-engine/docs/best-practices/rbac#default-roles-groups"
_POLICIES = "https://kubernetes.io/docs/concepts/services-networking/network-policies/"


def _known_subjects(binding: Declared) -> Iterator[str]:
    for subject in every(binding.properties, "subjects"):
        if subject["name"] in _EVERYONE:
            yield f"expected subjects that you know, got {subject['name']}"


def _named_rights(role: Declared) -> Iterator[str]:
    for rule in every(role.properties, "rules"):
        resources = ", ".join(every(rule, "resources")) or "other paths"
        for part in ("apiGroups", "resources", "verbs"):
            if "*" in every(rule, part):
                yield f"expected {part} by name, got * with {resources}"
        for verb in every(rule, "verbs"):
            if verb in _ESCALATING_VERBS:
                yield f"expected verbs that do not give the rights of others, got {verb} on {resources}"


def _internal(service: Declared) -> Iterator[str]:
    kind = at(service.properties, "spec", "type")
    internal = at(service.properties, "metadata", "annotations", "networking.gke.io/load-balancer-type") == "Internal"
    if kind == "NodePort" or (kind == "LoadBalancer" and not internal):
        yield f"expected a Service within the cluster or an internal load balancer, got {kind}"


def _refused(resource: Declared) -> Iterator[str]:
    yield f"expected no such object in the plan, got a {resource.type.rpartition(':')[2]}"


def _restricted(found: Declared) -> Iterator[str]:
    level = at(found.properties, "metadata", "labels", "pod-security.kubernetes.io/enforce")
    if level != "restricted":
        yield f"expected the label pod-security.kubernetes.io/enforce to be restricted, got {show(level)}"


def _closed(resources: Sequence[Declared]) -> Iterator[Violation]:
    policies = (
        (namespace(policy), at(policy.properties, "spec")) for policy in select_kind(resources, "NetworkPolicy")
    )
    both = {"Ingress", "Egress"}
    closed = {name for name, spec in policies if not at(spec, "podSelector") and both <= {*every(spec, "policyTypes")}}
    for team in team_namespaces(resources):
        if (name := object_name(team)) not in closed:
            expected = f"a NetworkPolicy for ingress and egress of all pods in namespace {name!r}"
            yield Violation(f"expected {expected}, got none", team.urn)


def _narrow(resources: Sequence[Declared]) -> Iterator[Violation]:
    teams = {object_name(team) for team in team_namespaces(resources)}
    for policy in select_kind(resources, "NetworkPolicy"):
        for message in (*_wide_ingress(policy, namespace(policy) in teams), *_wide_egress(policy)):
            yield Violation(message, policy.urn)


def _wide_ingress(policy: Declared, of_team: bool) -> Iterator[str]:
    for rule in every(policy.properties, "spec", "ingress"):
        peers = every(rule, "from") or [{}]
        if of_team and not (all(map(_is_own_namespace, peers)) or _is_collectors(rule)):
            yield "expected ingress only from the team's pods, or from collectors by port, got ingress from others"
        elif not all(_is_own_namespace(peer) or _is_named_namespace(peer) for peer in peers):
            yield "expected ingress from pods of a namespace by name, got any namespace or addresses"


def _wide_egress(policy: Declared) -> Iterator[str]:
    for rule in every(policy.properties, "spec", "egress"):
        peers = every(rule, "to") or [{}]
        blocks = [peer for peer in peers if at(peer, "ipBlock") is not None]
        if not all(peer in blocks or _is_own_namespace(peer) or _is_named_namespace(peer) for peer in peers):
            yield "expected egress to pods of a namespace by name, got egress to every namespace"
        if blocks and not every(rule, "ports"):
            yield "expected ports in egress to addresses, got all ports"


def _is_collectors(rule: Any) -> bool:
    named = {at(peer, "namespaceSelector", "matchLabels", NAMESPACE_LABEL) for peer in every(rule, "from")}
    return bool(every(rule, "ports")) and named == {_COLLECTORS}


def _is_own_namespace(peer: Any) -> bool:
    return set(peer) == {"podSelector"}


def _is_named_namespace(peer: Any) -> bool:
    selector = at(peer, "namespaceSelector")
    listed = [each for each in every(selector, "matchExpressions") if at(each, "operator") == "In"]
    return at(selector, "matchLabels", NAMESPACE_LABEL) is not None or NAMESPACE_LABEL in {
        at(each, "key") for each in listed
    }


RULES: tuple[Rule, ...] = (
    ResourceRule(
        id="no-cluster-admin",
        severity="critical",
        title="No role gives all rights in the cluster",
        why="A binding to cluster-admin makes every other rule useless, a wildcard also allows what a later version"
        " adds, and bind, escalate or impersonate allow everything.",
        fix="Bind a role that lists the API groups, resources and verbs that are needed.",
        link=_PRACTICES,
        checks={
            **dict.fromkeys(_BINDINGS, must_not_be("roleRef.name", "cluster-admin")),
            **dict.fromkeys(_ROLES, _named_rights),
        },
        replaces=("named-rights",),
    ),
    ResourceRule(
        id="no-binding-for-everyone",
        severity="critical",
        title="No role is bound to everyone, and the control plane refuses such bindings",
        why="system:authenticated is every Google account in the world, and system:serviceaccounts is every pod.",
        fix="Bind the role to a service account or to a group of your organization, and set both switches of"
        " rbacBindingConfig to false.",
        link=_GROUPS,
        checks={
            **dict.fromkeys(_BINDINGS, _known_subjects),
            CLUSTER: (
                must_be("rbacBindingConfig.enableInsecureBindingSystemUnauthenticated", False),
                must_be("rbacBindingConfig.enableInsecureBindingSystemAuthenticated", False),
            ),
        },
        replaces=("no-bindings-for-everyone",),
    ),
    ResourceRule(
        id="no-public-services",
        severity="high",
        title="Nothing in the cluster can be reached from outside",
        why="Training needs no such access, and the firewall rules of a load balancer outlive the cluster.",
        fix="Use a ClusterIP and `kubectl port-forward`, or an internal load balancer.",
        link="https://cloud.google.com/kubernetes-engine/docs/how-to/internal-load-balancing",
        checks={SERVICE: _internal, **dict.fromkeys(_ROUTED, _refused)},
    ),
    ResourceRule(
        id="pod-security",
        severity="high",
        title="Namespaces admit no pod with rights on its host",
        why="Otherwise anyone who may create pods in a namespace can be root on its nodes.",
        fix="Label the namespace with pod-security.kubernetes.io/enforce: restricted.",
        link="https://kubernetes.io/docs/concepts/security/pod-security-admission/",
        checks={NAMESPACE: _restricted},
    ),
    StackRule(
        id="closed-namespaces",
        severity="high",
        title="Pods of other teams cannot reach the namespace of a team",
        why="JAX's coordinator accepts everything that connects to it as a host of the job, without a password.",
        fix="Declare a NetworkPolicy with an empty podSelector and both policyTypes in the namespace.",
        link=_POLICIES,
        check=_closed,
    ),
    StackRule(
        id="narrow-network-policies",
        severity="medium",
        title="Network policies name the peers that they let through",
        why="Policies add up: one that names no peers opens what all others close.",
        fix="In from, name own pods or collectors with a port, and outside the namespaces of teams other namespaces by"
        " name. In to, name ports next to addresses.",
        link=_POLICIES,
        check=_narrow,
    ),
    ResourceRule(
        id="seen-objects",
        severity="high",
        title="The rules see every object of the cluster",
        why="Rules see only the values of a Release, only the change of a Patch, and nothing of a List, so any pod can"
        " come with them.",
        fix="Use helm.v4.Chart, which declares each object, and declare objects one by one and as a whole.",
        link="https://www.pulumi.com/registry/packages/kubernetes/api-docs/helm/v4/chart/",
        checks=dict.fromkeys(_UNSEEN, _refused),
    ),
)
