"""What GKE asks of node pools that are TPU slices, and slices of the jobs that run on them."""

from policy.rule import Rule
from policy.rules.tpu_shape import capacity, hosts, jobs, network, slices

RULES: tuple[Rule, ...] = (*slices.RULES, *hosts.RULES, *capacity.RULES, *network.RULES, *jobs.RULES)
