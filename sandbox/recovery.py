"""Finds the leftovers of a killed engine: its lock, and resources that it had not recorded yet.

After `kill -9` or a power failure, Pulumi refuses every change until the lock is removed, and does not know which
resources the engine was creating at that moment. The sandbox can find out, because the engine and everything that it
created are on this machine.
"""

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psutil

from infra.cluster.kubernetes import UNREACHABLE
from sandbox.providers.cloud import Cloud
from sandbox.providers.cluster import Cluster, UnknownKindError
from sandbox.site import Site, administrator

_CLOCK_SECONDS = 10.0
"""Tolerance between the clock of process start times and the clock of files, which differ by a second or two."""


@dataclass(frozen=True)
class Holder:
    """The process of this machine that locked a stack."""

    pid: int
    runs: bool


def lock_holder(site: Site, stack: str) -> Holder | None:
    """Return which process of this machine holds the lock of `stack`, if one does."""
    for path in (site.root / "state" / ".pulumi" / "locks").rglob(f"{stack}/*.json"):
        holder = json.loads(path.read_text())
        if holder["hostname"] == socket.gethostname():
            return Holder(holder["pid"], _runs_since(holder["pid"], path.stat().st_mtime))
    return None


def _runs_since(pid: int, moment: float) -> bool:
    """Return whether the process that had this pid at that moment is still running."""
    try:
        process = psutil.Process(pid)
        # After a restart of the machine another process may have the pid.
        began_later = process.create_time() > moment + _CLOCK_SECONDS
        return process.status() != psutil.STATUS_ZOMBIE and not began_later
    except psutil.NoSuchProcess:
        return False


def pending(site: Site, deployment: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the URNs of the resources that the engine of this state was creating when it died.

    The values are the ids of the created resources; `None` if a resource was not created.
    """
    creating = [each["resource"] for each in deployment.get("pending_operations", []) if each["type"] == "creating"]
    urns = {resource["urn"] for resource in creating}
    known = {
        (resource["type"], resource.get("id"))
        for resource in deployment.get("resources", [])
        if not (resource["urn"] in urns and resource.get("pendingReplacement"))
    }
    return {resource["urn"]: _found(site, resource, known) for resource in creating}


def unread(deployment: Mapping[str, Any]) -> list[str]:
    """Return the URNs of resources that a recovery added and that no refresh has read since."""
    return [
        resource["urn"]
        for resource in deployment.get("resources", [])
        if resource.get("id") and resource.get("inputs") and "outputs" not in resource
    ]


def _found(site: Site, resource: dict[str, Any], known: set[tuple[str, Any]]) -> str | None:
    if resource["type"].startswith("kubernetes:"):
        return _in_cluster(site, resource.get("inputs", {}))
    # What the engine created has every plain value of its inputs.
    wanted = {key: value for key, value in resource.get("inputs", {}).items() if isinstance(value, str)}
    for identifier, properties in Cloud(site.cloud).every(resource["type"]):
        same = all(properties.get(key) == value for key, value in wanted.items())
        if same and (resource["type"], identifier) not in known:
            return identifier
    return None


def _in_cluster(site: Site, inputs: dict[str, Any]) -> str | None:
    """Return the id that the Kubernetes provider gives an object, if the object exists."""
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


def taken_in(deployment: Mapping[str, Any], ids: Mapping[str, str | None]) -> dict[str, Any]:
    """Return the state with the pending resources that exist, and without the pending operations on `ids`.

    The new resources have no outputs until a refresh reads them. A resource that was being replaced takes the position
    of the deleted one, so that its dependents come after it.
    """
    operations = deployment.get("pending_operations", [])
    created = [operation["resource"] for operation in operations if ids.get(operation["resource"]["urn"])]
    made = {resource["urn"]: {**resource, "id": ids[resource["urn"]]} for resource in created}
    resources = [
        made.pop(resource["urn"]) if resource.get("pendingReplacement") and resource["urn"] in made else resource
        for resource in deployment.get("resources", [])
    ]
    rest = [operation for operation in operations if operation["resource"]["urn"] not in ids]
    return {**deployment, "resources": [*resources, *made.values()], "pending_operations": rest}
