"""Every rule of the policy pack."""

from collections.abc import Mapping

from policy.exceptions import ENDING
from policy.rule import About, Rule
from policy.rules import access, chips, cloud, cluster, pods

TABLES: Mapping[str, tuple[Rule, ...]] = {
    "Clusters and node pools": cluster.RULES,
    "Access in the cluster": access.RULES,
    "Pods": pods.RULES,
    "Google Cloud": cloud.RULES,
    "Chips, jobs and queues": chips.RULES,
}
ALL_RULES: tuple[Rule, ...] = tuple(rule for table in TABLES.values() for rule in table)
ALL_POLICIES: tuple[About, ...] = (ENDING, *ALL_RULES)
"""What a policy file may name: the rules, and the warning about exceptions that end soon."""
