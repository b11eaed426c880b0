"""Plans that keep and break the rules of `policy.rules.access`."""

from typing import Any

from infra.stack.access import network_policy
from infra.stack.settings.schema import Network
from policy.rule import NAMESPACE, SERVICE, Declared
from tests.policy.example import Example, declared
from tests.policy.examples.plan import alone, cluster, configuration, having, namespace, several

_RBAC = "kubernetes:rbac.authorization.k8s.io/v1"
_CLOSED, _NARROW, _UNSEEN = "closed-namespaces", "narrow-network-policies", "seen-objects"
_NAME = "kubernetes.io/metadata.name"
_NAMED = {"namespaceSelector": {"matchLabels": {_NAME: "monitoring"}}}
_COLLECTORS = {"namespaceSelector": {"matchLabels": {_NAME: "gmp-system"}}}
_WIDE: tuple[Any, ...] = (
    {"ipBlock": {"cidr": "0.0.0.0/0"}},
    {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}},
    {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "any"}}},
)
"""Peers without a name."""


def _role(name: str) -> Declared:
    return declared(f"{_RBAC}:ClusterRole", name, {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": []}]})


def _binding(name: str) -> Declared:
    subjects = [{"kind": "Group", "name": "trainers@example.com"}]
    return declared(f"{_RBAC}:RoleBinding", name, {"roleRef": {"name": "view"}, "subjects": subjects})


def _service(name: str) -> Declared:
    annotations = {"networking.gke.io/load-balancer-type": "Internal"}
    return declared(SERVICE, name, {"metadata": {"annotations": annotations}, "spec": {"type": "LoadBalancer"}})


def _namespace(name: str) -> Declared:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return declared(NAMESPACE, name, {"metadata": {"name": name, "labels": labels}})


def _policy(name: str) -> Declared:
    properties: Any = network_policy(name, Network(), monitored=True)
    return declared("kubernetes:networking.k8s.io/v1:NetworkPolicy", name, properties)


def _ingress(name: str, peer: Any, suffix: str = "") -> Declared:
    """Return a policy of a namespace that lets a peer in at one port."""
    rules = [{"from": [peer], "ports": [{"protocol": "TCP", "port": 8482}]}]
    policy = having(_policy(name), "spec.ingress", rules)
    return declared(policy.type, f"{name}{suffix}", policy.properties)


EXAMPLES: dict[str, Example] = {
    **several(
        "no-cluster-admin",
        "expected verbs by name, got * with pods",
        (_binding, ("roleRef.name", "cluster-admin")),
        (
            _role,
            (("rules", 0, "verbs"), ["*"]),
            (("rules", 0, "resources"), ["*"]),
            (("rules", 0, "verbs"), ["impersonate"]),
        ),
    ),
    **several(
        "no-binding-for-everyone",
        "got system:authenticated",
        (_binding, (("subjects", 0, "name"), "system:authenticated")),
        (
            cluster,
            ("rbacBindingConfig.enableInsecureBindingSystemAuthenticated", True),
            ("rbacBindingConfig.enableInsecureBindingSystemUnauthenticated", None),
        ),
    ),
    **several(
        "no-public-services",
        "an internal load balancer, got LoadBalancer",
        (_service, ("metadata", {}), ("spec.type", "NodePort")),
        also=(declared("kubernetes:networking.k8s.io/v1:Ingress", "no-public-services", {}),),
    ),
    **alone(
        "pod-security",
        _namespace,
        "restricted, got baseline",
        (("metadata", "labels", "pod-security.kubernetes.io/enforce"), "baseline"),
        ("metadata.labels", None),
    ),
    _CLOSED: Example(
        (namespace(_CLOSED), configuration(_CLOSED), _policy(_CLOSED)),
        (namespace(_CLOSED), configuration(_CLOSED), having(_policy(_CLOSED), "spec.policyTypes", ["Ingress"])),
        f"expected a NetworkPolicy for ingress and egress of all pods in namespace '{_CLOSED}', got none",
    ),
    _NARROW: Example(
        (namespace(_NARROW), configuration(_NARROW), _policy(_NARROW), _ingress("webhooks", _NAMED)),
        (
            namespace(_NARROW),
            configuration(_NARROW),
            *(_ingress(_NARROW, peer, f"-{index}") for index, peer in enumerate((*_WIDE, _NAMED))),
            *(_ingress("webhooks", peer, f"-{index}") for index, peer in enumerate(_WIDE)),
            having(_ingress(_NARROW, _COLLECTORS, "-collectors"), ("spec", "ingress", 0, "ports"), []),
            having(_policy(f"{_NARROW}-unnamed"), "spec.ingress", [{}]),
            having(_policy(f"{_NARROW}-to"), ("spec", "egress", 0, "to"), [_WIDE[1]]),
            having(_policy(f"{_NARROW}-ports"), ("spec", "egress", 3, "ports"), []),
        ),
        "expected ingress only from the team's pods, or from collectors by port, got ingress from others",
    ),
    _UNSEEN: Example(
        (declared("kubernetes:helm.sh/v4:Chart", _UNSEEN, {"chart": "kueue"}),),
        (
            declared("kubernetes:helm.sh/v3:Release", _UNSEEN, {"chart": "kueue"}),
            declared("kubernetes:apps/v1:DeploymentPatch", f"{_UNSEEN}-patch", {}),
            declared("kubernetes:apps/v1:DeploymentList", f"{_UNSEEN}-list", {}),
        ),
        "got a Release",
    ),
}
