"""What must hold of Kueue's objects among each other, with the slices and with the jobs."""

from policy.rule import Rule
from policy.rules.queue import flavors, jobs, kueue, quotas, teams

RULES: tuple[Rule, ...] = (*teams.RULES, *flavors.RULES, *quotas.RULES, *jobs.RULES, *kueue.RULES)
