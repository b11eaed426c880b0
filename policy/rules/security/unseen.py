"""What would bring objects into the cluster that no rule reads.

Owns the types that hide objects. What objects must be is in the other modules.
"""

from collections.abc import Iterator

from policy.rule import Declared, ResourceRule, Rule, Severity
from policy.rules.security.about import must

_UNSEEN = ("kubernetes:helm.sh/v3:Release", "kubernetes:*Patch", "kubernetes:*List")


def _seen(resource: Declared) -> Iterator[str]:
    yield f"expected objects that rules read one by one, got a {resource.type.rpartition(':')[2]}"


RULES: tuple[Rule, ...] = (
    ResourceRule(
        must(
            "seen-objects",
            Severity.HIGH,
            "Every object of the cluster is seen by the rules",
            why="Of a Release rules see the values, of a Patch the change, of a List nothing: any pod gets in by them.",
            fix="Use helm.v4.Chart, which declares each object, and declare objects whole and one by one.",
            link="https://www.pulumi.com/registry/packages/kubernetes/api-docs/helm/v4/chart/",
        ),
        _UNSEEN,
        _seen,
    ),
)
