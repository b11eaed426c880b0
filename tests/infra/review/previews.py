"""Previews of the tests, made up."""

from infra.review.review import Change, Finding, Previewed, review
from infra.stack.settings.read import parse
from tests.infra.review.known import NOTHING, own

POOL = "gcp:container/nodePool:NodePool"


def change(operation: str, resource_type: str, name: str, *properties: str) -> Change:
    return Change(operation=operation, type=resource_type, name=name, properties=properties)


def finding(rule: str, level: str, resource: str | None) -> Finding:
    says = f"expected less of {rule}, got more\nWhy: it costs.\nFix: take less\nSee: https://example.com/{rule}_a"
    return Finding.model_validate(
        {"rule": rule, "level": level, "severity": "high", "resource": resource, "message": says}
    )


def passing() -> Previewed:
    """A first preview, of two resources."""
    return Previewed(
        stack="dev",
        review=review("dev", parse(own("dev")), NOTHING),
        changes=(
            change("create", POOL, "slices-trillium-0"),
            change("create", "kubernetes:core/v1:Namespace", "namespace-research"),
        ),
        unchanged=0,
        findings=(),
        errors=(),
        seconds=7.6,
    )


def losing() -> Previewed:
    """A preview of an existing stack, which loses a pool and breaks two rules."""
    changes = (
        change("create", POOL, "slices-trillium-2"),
        change("update", "kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue", "quota-research", "spec.cohort"),
        change("replace", POOL, "slices-trillium-0", "nodeConfig.spot"),
        change("replace", "kubernetes:jobset.x-k8s.io/v1alpha2:JobSet", "job-tiny"),
        change("delete", POOL, "slices-trillium-1"),
    )
    broken = (finding("few-chips", "mandatory", "slices-trillium-0"), finding("few-slices", "advisory", None))
    return passing().model_copy(update={"changes": changes, "unchanged": 40, "findings": broken})
