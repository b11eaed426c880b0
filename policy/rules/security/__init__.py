"""Rules that a security reviewer of GKE would ask about."""

from policy.rule import Rule
from policy.rules.security import cluster

RULES: tuple[Rule, ...] = (*cluster.RULES,)
