"""What lets a trainer mark the node it runs on as one with a bad host, and do nothing else to any node.

Owns the role, its binding and the admission policy around it. RBAC alone cannot say "its own node" and "this taint":
the policy does, by the name of the node that the API server writes into tokens of pods
(https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#bound-service-account-tokens). When a
node is marked is the business of `workloads.training.quarantine`.
"""

from collections.abc import Mapping

from infra import admission_policies
from infra.names import SERVICE_ACCOUNT, SLICE_GROUP_LABEL, Manifest
from infra.settings.schema import Team
from workloads.spec import BAD_HOST_CHARACTERS, BAD_HOST_KEY

NAME = "trainer-marks-bad-host"
"""Of all four objects."""

_RBAC = "rbac.authorization.k8s.io"
_NODE_OF_TOKEN = "authentication.kubernetes.io/node-name"
"""Extra of a user whose token is bound to a pod."""

_FIXED_SPEC = ("podCIDR", "podCIDRs", "providerID", "unschedulable", "configSource", "externalID")
"""All of a node's specification but its taints (https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/node-v1/#NodeSpec)."""
_FIXED_METADATA = ("labels", "finalizers", "ownerReferences")
"""All of a node's metadata that a client may change, but its annotations."""


def objects(teams: Mapping[str, Team]) -> dict[str, Manifest]:
    """The objects for the trainers of all teams, by what each is."""
    namespaces = sorted({team.namespace for team in teams.values()})
    return {
        "policy": _policy(namespaces),
        "policy-binding": admission_policies.binding(NAME),
        "role": _role(),
        "role-binding": _role_binding(namespaces),
    }


def _role() -> Manifest:
    rule = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}
    return {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": NAME}, "rules": [rule]}


def _role_binding(namespaces: list[str]) -> Manifest:
    subjects = [{"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": namespace} for namespace in namespaces]
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": NAME},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": NAME},
        "subjects": subjects,
    }


def _policy(namespaces: list[str]) -> Manifest:
    users = ", ".join(f"'system:serviceaccount:{namespace}:{SERVICE_ACCOUNT}'" for namespace in namespaces)
    return admission_policies.policy(
        NAME,
        [("", "nodes", "*")],
        {
            "a trainer changes the node it runs on and no other": _own_node(),
            "a trainer marks nodes of slices alone": f"'{SLICE_GROUP_LABEL}' in oldObject.metadata.labels",
            f"a trainer adds the taint {BAD_HOST_KEY}:NoSchedule and no other": _that_taint(),
            f"a trainer changes nothing of a node but {BAD_HOST_KEY}": _nothing_else(),
            f"a trainer says why in {BAD_HOST_CHARACTERS} characters": f"{_short()}",
        },
        only=f"request.userInfo.username in [{users}]",
    )


def _own_node() -> str:
    node = f"request.userInfo.?extra[?'{_NODE_OF_TOKEN}'].orValue([])"
    return f"request.operation == 'UPDATE' && {node} == [request.name]"


def _that_taint() -> str:
    others = f"spec.?taints.orValue([]).filter(t, t.key != '{BAD_HOST_KEY}')"
    ours = f"spec.?taints.orValue([]).filter(t, t.key == '{BAD_HOST_KEY}').map(t, t.effect)"
    return f"object.{others} == oldObject.{others} && object.{ours} == ['NoSchedule']"


def _short() -> str:
    return f"size(object.metadata.?annotations[?'{BAD_HOST_KEY}'].orValue('')) <= {BAD_HOST_CHARACTERS}"


def _nothing_else() -> str:
    fixed = [f"spec.?{field}" for field in _FIXED_SPEC] + [f"metadata.?{field}" for field in _FIXED_METADATA]
    same = [f"object.{path} == oldObject.{path}" for path in fixed]
    return " && ".join([*same, _kept_annotations("object", "oldObject"), _kept_annotations("oldObject", "object")])


def _kept_annotations(of: str, other: str) -> str:
    annotations = "metadata.?annotations.orValue({})"
    return f"{of}.{annotations}.all(k, k == '{BAD_HOST_KEY}' || {other}.{annotations}[?k] == {of}.{annotations}[?k])"
