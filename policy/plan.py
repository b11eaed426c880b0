"""The resources of a plan, and how rules read them.

A preview does not know every value, such as the address of an account that does not exist yet. An `Unknown` represents
such a value. A rule that reads one ends, and Pulumi reports that the rule could not run. `up` runs every rule again
before it creates the resource, with the values that are known by then.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

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

    Raises:
        NotKnownYetError: a value on the way is `Unknown`.
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
