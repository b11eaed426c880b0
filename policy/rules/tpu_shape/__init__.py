"""Rules of this group."""

from policy.rule import Rule

RULES: tuple[Rule, ...] = ()
