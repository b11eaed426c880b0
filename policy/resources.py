"""How rules read the resources of a plan.

Owns the tokens of the types that rules share and the way to a value. Judges nothing.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from policy.rule import Declared

CLUSTER = "gcp:container/cluster:Cluster"
NODE_POOL = "gcp:container/nodePool:NodePool"
WORKLOAD_POLICY = "gcp:compute/resourcePolicy:ResourcePolicy"
NETWORK = "gcp:compute/network:Network"
BUCKET = "gcp:storage/bucket:Bucket"
REPOSITORY = "gcp:artifactregistry/repository:Repository"
JOB_SET = "kubernetes:jobset.x-k8s.io/v1alpha2:JobSet"

_OF_AN_ENVIRONMENT = "environment-of"
"""Label that `infra.settings.schema` gives."""

_UNITS = {"m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}


def at(value: Any, *path: str | int) -> Any:
    """The value at a path; None where there is none. One that a preview does not know ends the rule that touches it."""
    for key in path:
        if value is None:
            return None
        value = value.get(key) if isinstance(value, Mapping) else value[key]
    # Pulumi carries every number as a float, which reads badly in a message.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def switched_on(value: Any, *path: str | int, unsaid: bool) -> bool:
    """Whether the switch at a path is on; `unsaid` is what the provider takes it for where nothing is said."""
    found = at(value, *path)
    return unsaid if found is None else bool(found)


def every(value: Any, *path: str | int) -> list[Any]:
    """The items of the list at a path; none where there is none."""
    return list(at(value, *path) or ())


def of_type(resources: Iterable[Declared], token: str) -> Iterator[Declared]:
    """The resources of a type."""
    return (resource for resource in resources if resource.type == token)


def of_kind(resources: Iterable[Declared], kind: str) -> Iterator[Declared]:
    """The Kubernetes objects of a kind, whichever version of its API declares them."""
    return (
        resource
        for resource in resources
        if resource.type.startswith("kubernetes:") and resource.type.endswith(f":{kind}")
    )


def object_name(resource: Declared) -> Any:
    """The name of a Kubernetes object in the cluster."""
    return at(resource.properties, "metadata", "name")


def namespace(resource: Declared) -> Any:
    """Where a Kubernetes object lies."""
    return at(resource.properties, "metadata", "namespace")


def ends(resource: Declared) -> bool:
    """Whether it belongs to an environment, of which nothing is to be left."""
    labels = "resourceLabels" if resource.type == CLUSTER else "labels"
    return at(resource.properties, labels, _OF_AN_ENVIRONMENT) is not None


def chips(quantity: str | float) -> float:
    """A quantity as Kubernetes writes it, as a number."""
    written = str(quantity)
    number = written.rstrip("mkMG")
    return float(number) * _UNITS[written.removeprefix(number)]
