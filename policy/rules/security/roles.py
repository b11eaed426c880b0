"""Who may do what in the cluster. What its namespaces admit is in `namespaces`."""

from collections.abc import Iterator

from policy.resources import at
from policy.rule import Declared, ResourceRule, Rule, Severity
from policy.rules.security.about import must

RBAC = "kubernetes:rbac.authorization.k8s.io/v1"
_BINDINGS = (f"{RBAC}:ClusterRoleBinding", f"{RBAC}:RoleBinding")
_ROLES = (f"{RBAC}:ClusterRole", f"{RBAC}:Role")
_EVERYONE = ("system:anonymous", "system:unauthenticated", "system:authenticated", "system:serviceaccounts")
_ESCALATING = ("bind", "escalate", "impersonate")
_PRACTICE = "https://kubernetes.io/docs/concepts/security/rbac-good-practices/"


def _no_administrator(binding: Declared) -> Iterator[str]:
    role = at(binding.properties, "roleRef", "name")
    if role == "cluster-admin":
        yield "expected a role for one purpose, got cluster-admin"


def _known_subjects(binding: Declared) -> Iterator[str]:
    for subject in binding.properties.get("subjects") or ():
        if subject["name"] in _EVERYONE:
            yield f"expected subjects that you know, got {subject['name']}"


def _named_rights(role: Declared) -> Iterator[str]:
    for rule in role.properties.get("rules") or ():
        for part in ("apiGroups", "resources", "verbs"):
            if "*" in (rule.get(part) or ()):
                yield f"expected {part} by name, got * with {_shown(rule.get('resources'))}"
        for verb in rule.get("verbs") or ():
            if verb in _ESCALATING:
                yield f"expected verbs that give no rights of others, got {verb} on {_shown(rule.get('resources'))}"


def _shown(resources: list[str] | None) -> str:
    return ", ".join(resources or ()) or "other paths"


RULES: tuple[Rule, ...] = (
    ResourceRule(
        must(
            "no-cluster-admin",
            Severity.CRITICAL,
            "Nobody is made an administrator of the cluster",
            why="Such a binding ends every other rule of the cluster.",
            fix="Bind a role with the verbs and resources that are needed.",
            link=_PRACTICE,
        ),
        _BINDINGS,
        _no_administrator,
    ),
    ResourceRule(
        must(
            "no-binding-for-everyone",
            Severity.CRITICAL,
            "No role is bound to everyone",
            why="system:authenticated is everyone with a Google account; system:serviceaccounts is every pod.",
            fix="Bind the role to a service account or to a group of your organization.",
            link="https://cloud.google.com/kubernetes-engine/docs/best-practices/rbac#default-roles-groups",
        ),
        _BINDINGS,
        _known_subjects,
    ),
    ResourceRule(
        must(
            "named-rights",
            Severity.HIGH,
            "Roles name what they allow",
            why="A wildcard allows also what a later version adds, and bind or escalate allow everything at once.",
            fix="List API groups, resources and verbs.",
            link=_PRACTICE,
        ),
        _ROLES,
        _named_rights,
    ),
)
