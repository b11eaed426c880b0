"""What a rule is shown in tests: resources that keep it and resources that break it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policy.rule import Declared, ResourceRule, Rule, Violation
from policy.rules import ALL_RULES


@dataclass(frozen=True)
class Example:
    """A plan that a rule lets pass and one that it does not."""

    passing: tuple[Declared, ...]
    failing: tuple[Declared, ...]
    """A rule on single resources refuses each of them."""
    says: str
    """A part of what the rule says of `failing`."""


def declared(
    resource_type: str, name: str, properties: Mapping[str, Any], *, delete_before_replace: bool = False
) -> Declared:
    """Return a resource as a rule sees it."""
    urn = f"urn:pulumi:test::tpu-multislice::{resource_type}::{name}"
    return Declared(resource_type, name, urn, properties, delete_before_replace)


def violations(rule: Rule, plan: Sequence[Declared]) -> list[Violation]:
    """Return all that the rule says of a plan, before any exception."""
    if isinstance(rule, ResourceRule):
        return [Violation(message, resource.urn) for resource in plan for message in rule.messages(resource)]
    return list(rule.check(plan))


def says(rule_id: str, *plan: Declared) -> list[str]:
    """Return the messages of the rule with this id about a plan."""
    (rule,) = (rule for rule in ALL_RULES if rule.id == rule_id)
    return [found.message for found in violations(rule, plan)]
