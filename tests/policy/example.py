"""What a rule is shown in tests: resources that keep it and resources that break it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from policy.rule import Declared

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
    protected: bool = False,
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
        protected=protected,
        delete_before_replace=delete_before_replace,
        ignored_changes=ignored_changes,
        parent=parent,
    )
