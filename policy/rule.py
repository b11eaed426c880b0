"""What a rule of the policy pack is, and what it looks at.

Owns the types. Knows neither Pulumi's policy SDK nor any rule, so that a rule is tested on plain values.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any


class Group(StrEnum):
    """What a rule guards."""

    SECURITY = "security"
    COST = "cost"
    RELIABILITY = "reliability"
    TPU_SHAPE = "tpu-shape"
    QUEUE = "queue"


class Severity(StrEnum):
    """How bad it is to break a rule."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"


class Level(StrEnum):
    """What breaking a rule does, unless a stack's policy file says otherwise."""

    ADVISORY = "advisory"
    """A warning."""
    MANDATORY = "mandatory"
    """The preview fails."""


@dataclass(frozen=True)
class Declared:
    """One resource of a plan."""

    type: str
    """Pulumi's token, such as `gcp:container/nodePool:NodePool`."""
    name: str
    """Within the program, not in the cloud."""
    urn: str
    properties: Mapping[str, Any]
    """In camel case. In a preview a value may be unknown: to touch it ends the rule, and Pulumi tells so."""
    delete_before_replace: bool
    ignored_changes: tuple[str, ...]
    parent: str | None
    """URN."""


@dataclass(frozen=True)
class Broken:
    """What is wrong, of which resource."""

    says: str
    """Expected what, got what; without the fix, which the rule has."""
    urn: str | None
    """None: of the stack as a whole."""


@dataclass(frozen=True)
class About:
    """What a person is told of a rule."""

    id: str
    """Short, in kebab case; stands in policy files and never changes."""
    group: Group
    severity: Severity
    level: Level
    title: str
    """What must hold, as a sentence."""
    why: str
    fix: str
    """What to change in the stack file or the program."""
    link: str
    excusable: bool = True
    """Whether a policy file may name exceptions."""


@dataclass(frozen=True)
class ResourceRule:
    """A rule on one resource at a time."""

    about: About
    types: tuple[str, ...]
    """Tokens of the resources that it looks at, or patterns of them such as `gcp:*Binding`."""
    check: Callable[[Declared], Iterable[str]]
    """What is wrong; nothing if all is well."""

    def looks_at(self, resource_type: str) -> bool:
        return any(fnmatchcase(resource_type, pattern) for pattern in self.types)


@dataclass(frozen=True)
class StackRule:
    """A rule on all resources together."""

    about: About
    check: Callable[[Sequence[Declared]], Iterable[Broken]]


Rule = ResourceRule | StackRule
