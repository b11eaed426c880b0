"""What runs in the cluster at this moment.

Owns the questions that a change must ask before it takes slices away: which jobs have running pods,
on which node pools, and what of them is saved. Reads only; whether a change may go on is decided in
`infra.guard`.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml
from kubernetes import client, config
from urllib3.exceptions import HTTPError

from infra.kubeconfig import kubeconfig
from infra.names import KUEUE_API_VERSION, NODE_POOL_LABEL
from workloads.progress import CheckpointSaved, RunStarted

_JOBSET = "jobset.sigs.k8s.io/jobset-name"
_FIRST_HOST = {"jobset.sigs.k8s.io/job-global-index": "0", "batch.kubernetes.io/job-completion-index": "0"}
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
        label_selector=_JOBSET, field_selector="status.phase=Running", _request_timeout=_TIMEOUT_SECONDS
    )
    pods: defaultdict[tuple[str, str], list[Any]] = defaultdict(list)
    for pod in running.items:
        if pod.spec.node_name in pool_of:
            pods[pod.metadata.namespace, pod.metadata.labels[_JOBSET]].append(pod)
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
