"""Filled in by the group's rules."""

from policy.rule import Rule

RULES: tuple[Rule, ...] = ()
