"""What a rule is shown in tests: resources that keep it and resources that break it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policy.rule import Broken, Declared, ResourceRule, Rule

_STACK = "urn:pulumi:test::tpu-multislice"


@dataclass(frozen=True)
class Example:
    """A plan that a rule lets pass and one that it does not."""

    passing: tuple[Declared, ...]
    failing: tuple[Declared, ...]
    says: str
    """A part of what the rule says of `failing`."""


def declared(
    resource_type: str,
    name: str,
    properties: Mapping[str, Any],
    *,
    delete_before_replace: bool = False,
    ignored_changes: tuple[str, ...] = (),
    parent: str | None = None,
) -> Declared:
    """A resource as a rule sees it."""
    return Declared(
        type=resource_type,
        name=name,
        urn=f"{_STACK}::{resource_type}::{name}",
        properties=properties,
        delete_before_replace=delete_before_replace,
        ignored_changes=ignored_changes,
        parent=parent,
    )


def faults(rule: Rule, plan: Sequence[Declared]) -> list[Broken]:
    """All that the rule says of a plan, before any exception."""
    if isinstance(rule, ResourceRule):
        looked_at = (resource for resource in plan if rule.looks_at(resource.type))
        return [Broken(says, resource.urn) for resource in looked_at for says in rule.check(resource)]
    return list(rule.check(plan))
