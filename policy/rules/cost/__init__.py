"""What keeps a stack from costing more than someone decided that it may."""

from policy.rule import Rule
from policy.rules.cost import chips, rest

RULES: tuple[Rule, ...] = (*chips.RULES, *rest.RULES)
