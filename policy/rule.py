"""Rules of the policy pack as a data type.

A rule is a row of a table: the resources that it checks, the condition that they must satisfy, and the text that a
person reads if they do not. Rules do not use Pulumi's policy SDK, so tests run them on plain values.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from policy.plan import Declared, NotKnownYetError, at

Severity = Literal["low", "medium", "high", "critical"]
Level = Literal["advisory", "mandatory"]
"""Effect of a violation, unless the policy file of a stack overrides it: a warning, or a preview that fails."""


@dataclass(frozen=True)
class Violation:
    """What is wrong, and with which resource."""

    message: str
    """What was expected and what was found. The rule itself has the fix."""
    urn: str | None
    """URN of the resource; None for the stack as a whole."""


type Check = Callable[[Declared], Iterable[str]]
"""Yields a message for everything that is wrong with a resource."""
type StackCheck = Callable[[Sequence[Declared]], Iterable[Violation]]


@dataclass(frozen=True, kw_only=True)
class About:
    """Description of a rule for people."""

    id: str
    """Short name in kebab case. Policy files contain it, so it never changes."""
    severity: Severity
    title: str
    """The condition, as a sentence without its full stop."""
    why: str
    """The consequence of a violation."""
    fix: str
    """What to change in the stack file or the program."""
    link: str
    level: Level = "mandatory"
    excusable: bool = True
    """Whether a policy file may contain exceptions from the rule."""
    replaces: tuple[str, ...] = ()
    """Ids of earlier rules whose checks are now part of this rule."""


@dataclass(frozen=True, kw_only=True)
class ResourceRule(About):
    """A rule on one resource at a time."""

    checks: Mapping[str, Check | tuple[Check, ...]]
    """Checks by type of resource. A type may be a pattern such as `gcp:*Binding`."""

    def messages(self, resource: Declared) -> Iterator[str]:
        """Yield everything that is wrong with a resource.

        Raises:
            NotKnownYetError: a check read a value that is not known, raised after all other checks.
        """
        unknown: NotKnownYetError | None = None
        matching = (checks for pattern, checks in self.checks.items() if fnmatchcase(resource.type, pattern))
        for check in (check for checks in matching for check in (checks if isinstance(checks, tuple) else (checks,))):
            try:
                yield from check(resource)
            except NotKnownYetError as error:
                unknown = error
        if unknown:
            raise unknown


@dataclass(frozen=True, kw_only=True)
class StackRule(About):
    """A rule on all resources of a plan together."""

    check: StackCheck


type Rule = ResourceRule | StackRule


def must_be(path: str, *allowed: Any, unset: Any = None) -> Check:
    """Return a check that a field such as `nodeConfig.spot` has an allowed value. `unset` is the provider's default."""

    def check(resource: Declared) -> Iterator[str]:
        found = at(resource.properties, *path.split("."))
        if (unset if found is None else found) not in allowed:
            yield f"expected {path} to be {' or '.join(map(show, allowed))}, got {show(found)}"

    return check


def must_be_set(path: str) -> Check:
    """Return a check that a field has a value that is neither empty nor false."""

    def check(resource: Declared) -> Iterator[str]:
        if not at(resource.properties, *path.split(".")):
            yield f"expected {path} to be set, got nothing"

    return check


def must_not_be(path: str, *refused: Any) -> Check:
    """Return a check that a field has none of the refused values. None represents a field that is not set."""

    def check(resource: Declared) -> Iterator[str]:
        found = at(resource.properties, *path.split("."))
        if found in refused:
            yield f"expected {path} to be something other than {show(found)}"

    return check


def show(value: Any) -> str:
    """Return the value of a field in the words of a stack file."""
    return "nothing" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
