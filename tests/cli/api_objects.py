"""Objects of the Kubernetes API as a JobSet `tiny` of two slices with two hosts each makes them."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

START = datetime(2026, 1, 5, 12, 0, 0, tzinfo=UTC).timestamp()

JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/research/jobsets"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/research/workloads"
PODS = "/api/v1/namespaces/research/pods"
JOBS = "/apis/batch/v1/namespaces/research/jobs"
EVENTS = "/api/v1/namespaces/research/events"
NODES = "/api/v1/nodes"
QUEUES = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues"
LOCAL_QUEUES = "/apis/kueue.x-k8s.io/v1beta2/namespaces/research/localqueues"

HOSTS = ((0, 0), (0, 1), (1, 0), (1, 1))


def time(seconds: float) -> str:
    return datetime.fromtimestamp(START + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def metadata(name: str, created: float, **more: object) -> dict[str, Any]:
    return {"name": name, "uid": f"uid-{name}", "namespace": "research", "creationTimestamp": time(created), **more}


def jobset(
    restarts: int = 0,
    terminal: str = "",
    message: str = "",
    ended: float = 0,
    name: str = "tiny",
    spec: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    status: dict[str, Any] = {"restarts": restarts, "conditions": []}
    if terminal:
        reason = "AllJobsCompleted" if terminal == "Completed" else "FailJobSetFailurePolicyAction"
        status["terminalState"] = terminal
        status["conditions"] = [condition(terminal, "True", ended, message, reason)]
    container = {"name": "trainer", "env": [{"name": "JOB_SPEC", "value": json.dumps(spec or {})}]}
    of_job = {"parallelism": 2, "completions": 2, "template": {"spec": {"containers": [container]}}}
    job = {"name": "slice", "replicas": 2, "template": {"spec": of_job}}
    labels = {"kueue.x-k8s.io/queue-name": "research"}
    return {"metadata": metadata(name, 45, labels=labels), "spec": {"replicatedJobs": [job]}, "status": status}


def specified(existing_run: str, steps: int) -> dict[str, Any]:
    """Return the same job with the specification of a training job."""
    storage = {"path": "gs://bucket/tiny", "existing_run": existing_run}
    return jobset(spec={"storage": storage, "training": {"steps": steps}})


def headed(restarts: int = 0, terminal: str = "", ended: float = 0) -> dict[str, Any]:
    """Return the same job with Pathways, with a head in addition to its slices."""
    found = jobset(restarts, terminal, ended=ended)
    of_head = {"parallelism": 1, "completions": 1, "template": {"spec": {"containers": [{"name": "program"}]}}}
    head_job = {"name": "head", "replicas": 1, "template": {"spec": of_head}}
    found["spec"] = {
        "coordinator": {"replicatedJob": "head", "jobIndex": 0, "podIndex": 0},
        "replicatedJobs": [head_job, *found["spec"]["replicatedJobs"]],
    }
    return found


def condition(kind: str, status: str, at: float, message: str = "", reason: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "lastTransitionTime": time(at), "reason": reason, "message": message}


def workload(
    name: str = "jobset-tiny-1a2b3",
    conditions: Iterable[Mapping[str, str]] = (),
    owner: str = "tiny",
    created: float = 50,
    priority: int = 0,
) -> dict[str, Any]:
    about = metadata(name, created, ownerReferences=[{"kind": "JobSet", "name": owner}])
    status = {"conditions": [*conditions], "admission": {"clusterQueue": "research"}}
    return {"metadata": about, "spec": {"queueName": "research", "priority": priority}, "status": status}


ADMITTED = (condition("QuotaReserved", "True", 50), condition("Admitted", "True", 51))
NO_QUOTA = (
    "couldn't assign flavors to pod set slice: insufficient unused quota for google.com/tpu in flavor v6e-2x4,"
    " 16 more needed"
)


def pod(
    slice_index: int,
    host_index: int,
    phase: str = "Running",
    attempt: int = 0,
    exit_code: int | None = None,
    created: float = 52,
    deleting: bool = False,
    ended: float = 60,
) -> dict[str, Any]:
    name = f"tiny-slice-{slice_index}-{host_index}-{attempt}abcd"
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "tiny",
        "jobset.sigs.k8s.io/replicatedjob-name": "slice",
        "jobset.sigs.k8s.io/job-index": str(slice_index),
        "jobset.sigs.k8s.io/restart-attempt": str(attempt),
        "batch.kubernetes.io/job-completion-index": str(host_index),
    }
    leaving = {"deletionTimestamp": time(created + 5)} if deleting else {}
    status: dict[str, Any] = {"phase": phase}
    if phase != "Pending":
        status["startTime"] = time(created + 1)
        state = {"running": {"startedAt": time(created + 1)}}
        if exit_code is not None:
            state = {"terminated": {"exitCode": exit_code, "finishedAt": time(ended)}}
        status["containerStatuses"] = [{"name": "trainer", "state": state}]
    node = f"gke-slice-{slice_index}-{host_index}" if phase != "Pending" else ""
    spec = {"containers": [{"name": "trainer"}], **({"nodeName": node} if node else {})}
    return {"metadata": metadata(name, created, labels=labels, **leaving), "spec": spec, "status": status}


def head(phase: str = "Running", attempt: int = 0, exit_code: int | None = None, created: float = 52) -> dict[str, Any]:
    """The pod of its head."""
    found = pod(0, 0, phase, attempt, exit_code, created)
    name = f"tiny-head-0-0-{attempt}abcd"
    found["metadata"] |= {"name": name, "uid": f"uid-{name}"}
    found["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = "head"
    if phase != "Pending":
        found["spec"]["nodeName"] = "gke-system-0"
    return found


def stamped(lines: Iterable[str], at: float = 60, every: float = 0.1) -> list[str]:
    """Lines of a log as the API server writes them, one every so many seconds."""
    found: list[str] = []
    for number, line in enumerate(lines):
        moment = datetime.fromtimestamp(START + at + number * every, UTC)
        found.append(f"{moment:%Y-%m-%dT%H:%M:%S.%f}{number % 1000:03}Z {line}")
    return found
