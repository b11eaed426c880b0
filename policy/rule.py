"""The resources of a plan, and rules of the policy pack as a data type.

A rule is a row of a table: the resources that it checks, the condition that they must satisfy, and the text that a
person reads if they do not. Rules do not use Pulumi's policy SDK, so tests run them on plain values.

A preview does not know every value, such as the address of an account that does not exist yet. An `Unknown` represents
such a value. A rule that reads one ends, and Pulumi reports that the rule could not run. `up` runs every rule again
before it creates the resource, with the values that are known by then.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, NoReturn

CLUSTER = "gcp:container/cluster:Cluster"
NODE_POOL = "gcp:container/nodePool:NodePool"
FIREWALL = "gcp:compute/firewall:Firewall"
BUCKET = "gcp:storage/bucket:Bucket"
BILLING_BUDGET = "gcp:billing/budget:Budget"
REPOSITORY = "gcp:artifactregistry/repository:Repository"
JOB_SET = "kubernetes:jobset.x-k8s.io/v1alpha2:JobSet"
NAMESPACE = "kubernetes:core/v1:Namespace"
SERVICE = "kubernetes:core/v1:Service"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"


@dataclass(frozen=True)
class Declared:
    """One resource of a plan."""

    type: str
    """Pulumi's token, such as `gcp:container/nodePool:NodePool`."""
    name: str
    """Name within the program, not in the cloud."""
    urn: str
    properties: Mapping[str, Any]
    """Keys are in camel case. Values may be `Unknown` in a preview."""
    delete_before_replace: bool


class NotKnownYetError(Exception):
    """Raised when a rule reads a value that a preview does not know."""

    def __init__(self, path: tuple[str, ...]) -> None:
        super().__init__(f"{'.'.join(path)} is not known yet")
        self.path = path


class Unknown:
    """A value that a preview does not know. A rule can only ask whether a value is unknown."""

    def __init__(self, path: tuple[str, ...]) -> None:
        self._path = path

    def _read(self, *_: object) -> NoReturn:
        raise NotKnownYetError(self._path)

    __bool__: Any = _read
    __contains__: Any = _read
    __eq__: Any = _read
    __float__: Any = _read
    __ge__: Any = _read
    __getattr__: Any = _read
    __getitem__: Any = _read
    __gt__: Any = _read
    __hash__: Any = _read
    __int__: Any = _read
    __iter__: Any = _read
    __le__: Any = _read
    __len__: Any = _read
    __lt__: Any = _read
    __str__: Any = _read


def is_known(value: object) -> bool:
    """Return whether a rule may read the value."""
    return not isinstance(value, Unknown)


def at(value: Any, *path: str | int) -> Any:
    """Return the value at a path, or None if there is no such value.

    Raise NotKnownYetError if a value on the way is `Unknown`.
    """
    for key in path:
        if value is None:
            return None
        value = value.get(key) if isinstance(value, Mapping) else value[key]
    # Pulumi passes every number as a float, which reads badly in a message.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def every(value: Any, *path: str | int) -> list[Any]:
    """Return the items of the list at a path; no items if there is no list."""
    return list(at(value, *path) or ())


def select_type(resources: Iterable[Declared], token: str) -> Iterator[Declared]:
    """Yield the resources of a type."""
    return (resource for resource in resources if resource.type == token)


def select_kind(resources: Iterable[Declared], kind: str) -> Iterator[Declared]:
    """Yield the Kubernetes objects of a kind in any version of its API."""
    return (
        resource
        for resource in resources
        if resource.type.startswith("kubernetes:") and resource.type.endswith(f":{kind}")
    )


def object_name(resource: Declared) -> Any:
    """Return the name of a Kubernetes object in the cluster."""
    return at(resource.properties, "metadata", "name")


def namespace(resource: Declared) -> Any:
    """Return the namespace of a Kubernetes object."""
    return at(resource.properties, "metadata", "namespace")


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

        Raise NotKnownYetError if a check read a value that is not known, raised after all other checks.
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
