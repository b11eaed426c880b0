"""What must hold of a cluster's control plane and network."""

from collections.abc import Iterator

from policy.rule import About, Declared, Group, Level, ResourceRule, Rule, Severity

CLUSTER = "gcp:container/cluster:Cluster"


def _private_nodes(cluster: Declared) -> Iterator[str]:
    if not cluster.properties.get("privateClusterConfig", {}).get("enablePrivateNodes"):
        yield "expected privateClusterConfig.enablePrivateNodes to be true, got nothing or false"


RULES: tuple[Rule, ...] = (
    ResourceRule(
        About("private-nodes", Group.SECURITY, Severity.HIGH, Level.MANDATORY, "Nodes have no public addresses",
        "w", "f", "https://cloud.google.com/kubernetes-engine/docs/how-to/private-clusters"), (CLUSTER,), _private_nodes),
)
