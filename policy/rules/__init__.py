"""Every rule of the policy pack."""

from collections.abc import Mapping

from policy.rule import Rule
from policy.rules import access, chips, cloud, cluster, pods

TABLES: Mapping[str, tuple[Rule, ...]] = {
    "Clusters and node pools": cluster.RULES,
    "Access in the cluster": access.RULES,
    "Pods": pods.RULES,
    "Google Cloud": cloud.RULES,
    "Chips, jobs and queues": chips.RULES,
}
ALL_RULES: tuple[Rule, ...] = tuple(rule for table in TABLES.values() for rule in table)
