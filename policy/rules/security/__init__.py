"""Rules that a security reviewer of GKE would ask about."""

from policy.rule import Rule
from policy.rules.security import (
    access,
    cluster,
    confinement,
    grants,
    namespaces,
    nodes,
    pods,
    roles,
    storage,
    unseen,
)

RULES: tuple[Rule, ...] = (
    *cluster.RULES,
    *access.RULES,
    *nodes.RULES,
    *storage.RULES,
    *grants.RULES,
    *pods.RULES,
    *confinement.RULES,
    *roles.RULES,
    *namespaces.RULES,
    *unseen.RULES,
)
