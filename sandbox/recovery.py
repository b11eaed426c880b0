"""What a killed engine leaves behind: its lock, and resources that it was about to write down.

After `kill -9`, or a power cut, Pulumi refuses every change until somebody lifts the lock, and does not know what the
engine was creating at that moment. The sandbox knows both: the engine was a process of this machine, and everything
that it can have made is here.
"""

import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from infra.api_server import UNREACHABLE
from sandbox.access import administrator
from sandbox.providers.cloud import Cloud
from sandbox.providers.cluster import Cluster, UnknownKindError
from sandbox.site import Site

_KUBERNETES = "kubernetes:"


@dataclass(frozen=True)
class Pending:
    """A resource that a killed engine was creating."""

    urn: str
    id: str | None
    """Under which it exists; `None`: it was not made."""


def dead_lock(site: Site, stack: str) -> int | None:
    """Return the pid of the dead process of this machine that holds the lock of `stack`, if one does."""
    for path in (site.root / "state" / ".pulumi" / "locks").rglob(f"{stack}/*.json"):
        holder = json.loads(path.read_text())
        if holder["hostname"] == socket.gethostname() and not psutil.pid_exists(holder["pid"]):
            return holder["pid"]
    return None


def pending(site: Site, deployment: Mapping[str, Any]) -> list[Pending]:
    """Return what the engine that wrote this state was creating when it died."""
    known = {(resource["type"], resource.get("id")) for resource in deployment.get("resources", [])}
    creating = (each["resource"] for each in deployment.get("pending_operations", []) if each["type"] == "creating")
    return [Pending(resource["urn"], _found(site, resource, known)) for resource in creating]


def _found(site: Site, resource: dict[str, Any], known: set[tuple[str, Any]]) -> str | None:
    if resource["type"].startswith(_KUBERNETES):
        return _in_cluster(site, resource.get("inputs", {}))
    names = (found for found in _in_cloud(site, resource) if (resource["type"], found) not in known)
    return next(names, None)


def _in_cluster(site: Site, inputs: dict[str, Any]) -> str | None:
    """The id that the Kubernetes provider gives an object, if the object exists."""
    metadata = inputs.get("metadata", {})
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if name is None:
        return None
    cluster = Cluster(administrator(site))
    try:
        exists = cluster.server.find(cluster.kind(inputs["apiVersion"], inputs["kind"]).path(namespace, name))
    except (UnknownKindError, *UNREACHABLE):
        return None
    return "/".join(filter(None, (namespace, name))) if exists else None


def _in_cloud(site: Site, resource: dict[str, Any]) -> Iterator[str]:
    """Ids of the cloud's resources that have every plain value of its inputs."""
    wanted = {key: value for key, value in resource.get("inputs", {}).items() if isinstance(value, str)}
    for identifier, properties in Cloud(site.cloud).every(resource["type"]):
        if all(properties.get(key) == value for key, value in wanted.items()):
            yield identifier


def refresh_flags(found: list[Pending]) -> list[str]:
    """Return the options of `pulumi refresh` that take in what was made and forget what was not."""
    made = [word for each in found if each.id for word in (each.urn, each.id)]
    return [f"--import-pending-creates={word}" for word in made] + ["--clear-pending-creates"]
