"""What keeps a cluster, its slices, its jobs and their checkpoints through upgrades, failures and mistakes."""

from policy.rule import Rule
from policy.rules.reliability import cluster, jobs, nodes, storage

RULES: tuple[Rule, ...] = (*cluster.RULES, *nodes.RULES, *storage.RULES, *jobs.RULES)
