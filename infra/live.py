"""What runs in the cluster at this moment, and why an object is not going away."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pulumi
import yaml
from kubernetes import client, config
from urllib3.exceptions import HTTPError

from infra.kubernetes import kubeconfig
from infra.names import (
    COMPLETION_INDEX_LABEL,
    GLOBAL_INDEX_LABEL,
    JOBSET_LABEL,
    KUEUE_API_VERSION,
    KUEUE_GROUP,
    NODE_POOL_LABEL,
)
from workloads.progress import CheckpointSaved, RunStarted

_FIRST_HOST = {GLOBAL_INDEX_LABEL: "0", COMPLETION_INDEX_LABEL: "0"}
_TIMEOUT_SECONDS = 20
_LOG_LINES = 2000
"""Far more than the trainer prints between two checkpoints."""
UNREACHABLE = (client.ApiException, config.ConfigException, HTTPError, OSError)
"""What these functions raise when the cluster does not answer or its credential plugin is missing."""


@dataclass(frozen=True)
class LiveJob:
    """A JobSet with running pods."""

    namespace: str
    name: str
    pools: tuple[str, ...]
    """Node pools that its pods run on."""
    saved: str
    """Its last checkpoint, in words."""

    def __str__(self) -> str:
        return f"job {self.name} in namespace {self.namespace} runs on {', '.join(self.pools)}; {self.saved}"


def connect(endpoint: str) -> client.ApiClient:
    """The cluster behind a DNS endpoint; the credential plugin runs now."""
    settings: Any = client.Configuration()
    config.load_kube_config_from_dict(yaml.safe_load(kubeconfig(endpoint)), client_configuration=settings)
    return client.ApiClient(settings)


def live_jobs(cluster: client.ApiClient, pools: Iterable[str]) -> list[LiveJob]:
    """The jobs that have pods on any of these node pools."""
    api = client.CoreV1Api(cluster)
    selector = f"{NODE_POOL_LABEL} in ({','.join(pools)})"
    nodes: Any = api.list_node(label_selector=selector, _request_timeout=_TIMEOUT_SECONDS)
    pool_of = {node.metadata.name: node.metadata.labels[NODE_POOL_LABEL] for node in nodes.items}
    running: Any = api.list_pod_for_all_namespaces(
        label_selector=JOBSET_LABEL, field_selector="status.phase=Running", _request_timeout=_TIMEOUT_SECONDS
    )
    pods: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
    for pod in running.items:
        if pod.spec.node_name in pool_of:
            pods[pod.metadata.namespace, pod.metadata.labels[JOBSET_LABEL]].append(pod)
    return [
        LiveJob(namespace, name, tuple(sorted({pool_of[pod.spec.node_name] for pod in found})), _saved(api, found))
        for (namespace, name), found in sorted(pods.items())
    ]


def hosts(cluster: client.ApiClient, pool: str) -> int:
    """Return how many nodes of a node pool have joined the cluster."""
    api = client.CoreV1Api(cluster)
    nodes: Any = api.list_node(label_selector=f"{NODE_POOL_LABEL}={pool}", _request_timeout=_TIMEOUT_SECONDS)
    return len(nodes.items)


def workloads(cluster: client.ApiClient) -> list[dict[str, Any]]:
    """Kueue's Workloads of all namespaces, as they are kept: those that run, that wait and that ended."""
    group, _, version = KUEUE_API_VERSION.partition("/")
    api = client.CustomObjectsApi(cluster)
    found: Any = api.list_cluster_custom_object(group, version, "workloads", _request_timeout=_TIMEOUT_SECONDS)
    return found["items"]


def _saved(api: client.CoreV1Api, pods: list[Any]) -> str:
    """What the log of the job's first host says of checkpoints."""
    first = [pod for pod in pods if _FIRST_HOST.items() <= pod.metadata.labels.items()]
    if not first:
        return "its log cannot be read, so its last checkpoint is not known"
    metadata = first[0].metadata
    try:
        log = api.read_namespaced_pod_log(
            metadata.name, metadata.namespace, tail_lines=_LOG_LINES, _request_timeout=_TIMEOUT_SECONDS
        )
    except UNREACHABLE:
        return "its log cannot be read, so its last checkpoint is not known"
    return _last_checkpoint(log.splitlines())


def _last_checkpoint(lines: list[str]) -> str:
    for line in reversed(lines):
        if saved := CheckpointSaved.parse(line):
            return f"its last checkpoint is step {saved.step} in {saved.folder}"
        if (started := RunStarted.parse(line)) and started.step:
            return f"its last checkpoint is step {started.step}, from which it resumed"
    return "it has told of no checkpoint"


_KUEUE_VERSION = "v1beta2"


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
        KUEUE_GROUP, _KUEUE_VERSION, plural, _request_timeout=_TIMEOUT_SECONDS
    )
    return listed["items"]


def _told(kind: str, found: dict[str, Any]) -> str:
    metadata = found["metadata"]
    place = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
    finalizers = metadata.get("finalizers")
    return f"{kind} {place}" + (f" (finalizers {', '.join(finalizers)})" if finalizers else "")
