"""Jobs that run in the cluster at this moment, and what keeps an object from being deleted. Read-only."""

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from infra.cluster.job_state import workload_of
from infra.cluster.kubernetes import UNREACHABLE, ApiServer, Json
from infra.stack.names import (
    COMPLETION_INDEX_LABEL,
    GLOBAL_INDEX_LABEL,
    JOBSET_LABEL,
    KUEUE_API_VERSION,
    NODE_POOL_LABEL,
    NODES,
    PODS,
)
from workloads.progress import CheckpointSaved, RunStarted

_FIRST_HOST = {GLOBAL_INDEX_LABEL: "0", COMPLETION_INDEX_LABEL: "0"}
_LOG_LINES = 2000
"""Number of log lines to search: far more than the trainer prints between two checkpoints."""


@dataclass(frozen=True)
class RunningJob:
    """A job that holds chips."""

    namespace: str
    name: str
    pools: tuple[str, ...]
    """Node pools of its running pods. Empty: none of its pods runs yet."""
    saved: str
    """Its last checkpoint, as text."""

    def __str__(self) -> str:
        doing = f"runs on {', '.join(self.pools)}; {self.saved}" if self.pools else "is starting"
        return f"job {self.name} in namespace {self.namespace} {doing}"


def running_jobs(
    cluster: ApiServer,
    pools: Collection[str],
    namespaces: Collection[str] = (),
    quotas: Collection[tuple[str, str]] = (),
) -> list[RunningJob]:
    """Return the jobs that have pods on any of these node pools, that hold chips from one of these namespaces, or that
    hold chips of one of these quotas, each a ClusterQueue and a flavor."""
    labels = [node["metadata"] for node in _list(cluster, NODES, {"labelSelector": NODE_POOL_LABEL})]
    pool_of = {node["name"]: node["labels"][NODE_POOL_LABEL] for node in labels}
    query = {"labelSelector": JOBSET_LABEL, "fieldSelector": "status.phase=Running"}
    pods: defaultdict[tuple[str, str], list[Json]] = defaultdict(list)
    for pod in _list(cluster, "/api/v1/pods", query):
        pods[pod["metadata"]["namespace"], pod["metadata"]["labels"][JOBSET_LABEL]].append(pod)
    of_job = {job: {pool_of.get(pod["spec"]["nodeName"]) for pod in found} - {None} for job, found in pods.items()}
    wanted = {job for job, found in of_job.items() if not found.isdisjoint(pools)}
    if namespaces or quotas:
        wanted |= set(_holders_of_quota(cluster, namespaces, quotas))
    return [
        RunningJob(
            namespace,
            name,
            tuple(sorted(map(str, of_job.get((namespace, name), ())))),
            _find_checkpoint(cluster, pods[namespace, name]),
        )
        for namespace, name in sorted(wanted)
    ]


def _holders_of_quota(
    cluster: ApiServer, namespaces: Collection[str], quotas: Collection[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    for found in map(workload_of, workloads(cluster)):
        held = {(found.admitted_by, flavor) for flavor in found.flavors}
        needed = found.namespace in namespaces or not held.isdisjoint(quotas)
        if needed and found.admitted_by and not found.holds("Finished"):
            yield found.namespace, found.owner


def hosts(cluster: ApiServer, pool: str) -> int:
    """Return how many nodes of a node pool have joined the cluster."""
    return len(_list(cluster, NODES, {"labelSelector": f"{NODE_POOL_LABEL}={pool}"}))


def workloads(cluster: ApiServer) -> list[Json]:
    """Return Kueue's Workloads of all namespaces: running, waiting and ended ones."""
    return _kueue(cluster, "workloads")


def _list(cluster: ApiServer, path: str, query: dict[str, str] | None = None) -> list[Json]:
    return cluster.request("GET", path, query=query)["items"]


def _kueue(cluster: ApiServer, plural: str) -> list[Json]:
    return _list(cluster, f"/apis/{KUEUE_API_VERSION}/{plural}")


def _find_checkpoint(cluster: ApiServer, pods: list[Json]) -> str:
    """Return what the log of the job's first host says about checkpoints."""
    for pod in pods:
        metadata = pod["metadata"]
        if _FIRST_HOST.items() <= metadata["labels"].items():
            path = f"{PODS.format(metadata['namespace'])}/{metadata['name']}/log"
            try:
                return _last_checkpoint(cluster.text(path, {"tailLines": str(_LOG_LINES)}).splitlines())
            except UNREACHABLE:
                break
    return "its log cannot be read, so its last checkpoint is unknown"


def _last_checkpoint(lines: list[str]) -> str:
    for line in reversed(lines):
        if saved := CheckpointSaved.parse(line):
            return f"its last checkpoint is step {saved.step} in {saved.folder}"
        if (started := RunStarted.parse(line)) and started.step:
            return f"its last checkpoint is step {started.step}, from which it resumed"
    return "it has logged no checkpoint"


def holders(cluster: ApiServer, kind: str, name: str) -> Iterator[str]:
    """Yield the objects that keep this one from being deleted, each with the reason, as text."""
    match kind:
        case "Namespace":
            yield from _in_namespace(cluster, name)
        case "ClusterQueue":
            for workload in _kueue(cluster, "workloads"):
                if workload.get("status", {}).get("admission", {}).get("clusterQueue") == name:
                    yield f"{_describe('Workload', workload)} uses its quota"
        case "ResourceFlavor":
            for queue in _kueue(cluster, "clusterqueues"):
                groups = queue["spec"].get("resourceGroups", [])
                if any(flavor["name"] == name for group in groups for flavor in group["flavors"]):
                    yield f"{_describe('ClusterQueue', queue)} names it"
        case "Topology":
            for flavor in _kueue(cluster, "resourceflavors"):
                if flavor["spec"].get("topologyName") == name:
                    yield f"{_describe('ResourceFlavor', flavor)} names it"
        case "AdmissionCheck":
            for queue in _kueue(cluster, "clusterqueues"):
                checks = queue["spec"].get("admissionChecksStrategy", {}).get("admissionChecks", [])
                if any(check["name"] == name for check in checks):
                    yield f"{_describe('ClusterQueue', queue)} requires it"
        case _:
            return


def _in_namespace(cluster: ApiServer, name: str) -> Iterator[str]:
    """Yield the Workloads in a namespace by name, and for everything else the conditions of the namespace."""
    for workload in _kueue(cluster, "workloads"):
        if workload["metadata"]["namespace"] == name:
            yield f"{_describe('Workload', workload)} is in it"
    namespace = cluster.request("GET", f"/api/v1/namespaces/{name}")
    for condition in namespace.get("status", {}).get("conditions", []):
        if condition["status"] == "True":
            yield condition["message"]


def _describe(kind: str, found: Json) -> str:
    metadata = found["metadata"]
    place = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
    finalizers = metadata.get("finalizers")
    return f"{kind} {place}" + (f" (finalizers {', '.join(finalizers)})" if finalizers else "")
