"""Why an object is not going away.

Owns the answer to a delete that timed out: which other objects hold the finalizers. Kueue lifts its
own from a queue when no workload uses it, from a flavor when no queue does, and so on.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pulumi
from kubernetes import client

from infra.live_jobs import UNREACHABLE, connect

_KUEUE = "kueue.x-k8s.io"
_KUEUE_VERSION = "v1beta2"
_TIMEOUT_SECONDS = 20


def told_when_stuck(endpoint: pulumi.Output[str]) -> pulumi.ResourceHookBinding:
    """Hooks that tell, when the delete of an object in the cluster behind `endpoint` fails, what holds it."""

    async def tell(failure: pulumi.ErrorHookArgs) -> bool:
        host = await endpoint.future() if failure.failed_operation == "delete" else None
        if host is not None:
            kind, name = failure.type.rpartition(":")[2], (failure.old_inputs or {})["metadata"]["name"]
            for reason in await asyncio.to_thread(_asked, host, kind, name):
                pulumi.log.error(f"{kind} {name} is not going away: {reason}")
        return False

    return pulumi.ResourceHookBinding(on_error=[pulumi.ErrorHook("told-when-stuck", tell)])


def _asked(host: str, kind: str, name: str) -> list[str]:
    try:
        return list(holders(connect(host), kind, name))
    except UNREACHABLE:
        return []


def holders(api: client.ApiClient, kind: str, name: str) -> Iterator[str]:
    """Objects that keep this one from being deleted, each with the reason, in words."""
    match kind:
        case "Namespace":
            yield from _in_namespace(api, name)
        case "ClusterQueue":
            for workload in _kueue(api, "workloads"):
                if workload.get("status", {}).get("admission", {}).get("clusterQueue") == name:
                    yield f"{_told('Workload', workload)} uses its quota"
        case "ResourceFlavor":
            for queue in _kueue(api, "clusterqueues"):
                groups = queue["spec"].get("resourceGroups", [])
                if any(flavor["name"] == name for group in groups for flavor in group["flavors"]):
                    yield f"{_told('ClusterQueue', queue)} names it"
        case "Topology":
            for flavor in _kueue(api, "resourceflavors"):
                if flavor["spec"].get("topologyName") == name:
                    yield f"{_told('ResourceFlavor', flavor)} names it"
        case "AdmissionCheck":
            for queue in _kueue(api, "clusterqueues"):
                checks = queue["spec"].get("admissionChecksStrategy", {}).get("admissionChecks", [])
                if any(check["name"] == name for check in checks):
                    yield f"{_told('ClusterQueue', queue)} asks for it"
        case _:
            return


def _in_namespace(api: client.ApiClient, name: str) -> Iterator[str]:
    """What lies in it still, by name where jobs leave things, and by what the API server says of the rest."""
    for workload in _kueue(api, "workloads"):
        if workload["metadata"]["namespace"] == name:
            yield f"{_told('Workload', workload)} lies in it"
    namespace: Any = client.CoreV1Api(api).read_namespace(name, _request_timeout=_TIMEOUT_SECONDS)
    for condition in namespace.status.conditions or []:
        if condition.status == "True":
            yield condition.message


def _kueue(api: client.ApiClient, plural: str) -> list[dict[str, Any]]:
    listed: Any = client.CustomObjectsApi(api).list_cluster_custom_object(
        _KUEUE, _KUEUE_VERSION, plural, _request_timeout=_TIMEOUT_SECONDS
    )
    return listed["items"]


def _told(kind: str, found: dict[str, Any]) -> str:
    metadata = found["metadata"]
    place = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
    finalizers = metadata.get("finalizers")
    return f"{kind} {place}" + (f" (finalizers {', '.join(finalizers)})" if finalizers else "")
