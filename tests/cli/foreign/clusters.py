"""Jobs on a cluster that others made, as its API server shows them."""

from collections.abc import Iterable
from typing import Any

from tests.cli.api_server import Played
from tests.cli.rehearse import clusters
from tests.cli.rehearse.clusters import TPU, Object, cluster, local_queue, named, xpk

JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
JOBS, PODS = "/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/pods"
EVENTS, RECORDS = "/api/v1/namespaces/default/events", "/api/v1/namespaces/default/configmaps"
BEGAN = "2026-01-05T12:00:00Z"
TAKEN = (
    f"couldn't assign flavors to pod set slice: insufficient unused quota for {TPU} in flavor 1xv6e-16, 16 more needed"
)


def foreign(*objects: Object, version: str = "v1beta2") -> Played:
    """A cluster with these objects, of which no stack has published a record."""
    places = {"JobSet": JOBSETS, "Job": JOBS, "Pod": PODS, "Event": EVENTS}
    played = cluster(*(each for each in objects if each["kind"] not in places), version=version)
    for path in (*places.values(), RECORDS):
        played.collections[path] = []
    for each in objects:
        if each["kind"] in places:
            played.collections[places[each["kind"]]].append(each)
    return played


def condition(kind: str, reason: str = "", message: str = "", at: str = BEGAN, status: str = "True") -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at}


def jobset(name: str, restarts: int = 0, ended: str = "", **changes: Any) -> Object:
    """A JobSet of two slices with four hosts each, as xpk makes it."""
    found = clusters.jobset(name, replicas=2, **changes)
    found["metadata"] |= {"uid": f"uid-{name}", "namespace": "default", "creationTimestamp": BEGAN}
    found["metadata"]["annotations"] = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}
    found["spec"]["failurePolicy"] = {"maxRestarts": 3}
    found["status"] = {"restarts": restarts, "restartsCountTowardsMax": restarts}
    if ended:
        found["status"] |= {"terminalState": ended, "conditions": [condition(ended, "x", "it ended")]}
    return found


def job(name: str, queue: str = "multislice-queue", pods: int = 4, **status: Any) -> Object:
    """A plain batch Job of one slice."""
    spec = clusters.jobset()["spec"]["replicatedJobs"][0]["template"]["spec"]
    about = {"uid": f"uid-{name}", "namespace": "default", "creationTimestamp": BEGAN}
    labels = {"kueue.x-k8s.io/queue-name": queue}
    return {
        "kind": "Job",
        "metadata": {"name": name, "labels": labels, **about},
        "spec": {**spec, "parallelism": pods, "completions": pods},
        "status": status,
    }


def workload(
    name: str,
    chips: int = 32,
    flavor: str | None = "1xv6e-16",
    conditions: Iterable[Object] = (),
    kind: str = "JobSet",
    status: Object | None = None,
    **more: Any,
) -> Object:
    """The Workload of a job of this kind, admitted or waiting."""
    found = clusters.workload(name, chips, flavor, **more)
    found["metadata"]["ownerReferences"][0] |= {"kind": kind, "controller": True, "uid": f"uid-{name}"}
    admitted = [condition("Admitted", "Admitted", at="2026-01-05T12:04:10Z")] if flavor else []
    own = {each["type"] for each in conditions}
    kept = [each for each in found["status"].get("conditions", []) if each["type"] not in own]
    found["status"] |= {"conditions": [*kept, *admitted, *conditions], **(status or {})}
    return found


def waiting(name: str, message: str = TAKEN, **more: Any) -> Object:
    said = condition("QuotaReserved", "Pending", message, status="False")
    return workload(name, 16, None, [said], **more)


def pod(owner: str, host: int = 0, kind: str = "JobSet", slice_index: int = 0, phase: str = "Running") -> Object:
    labels = {"batch.kubernetes.io/job-completion-index": str(host), "batch.kubernetes.io/job-name": owner}
    name = f"{owner}-{host}-abcde"
    if kind == "JobSet":
        prefix, name = "jobset.sigs.k8s.io", f"{owner}-slice-job-{slice_index}-{host}-abcde"
        labels |= {
            "batch.kubernetes.io/job-name": f"{owner}-slice-job-{slice_index}",
            f"{prefix}/jobset-name": owner,
            f"{prefix}/replicatedjob-name": "slice-job",
            f"{prefix}/job-index": str(slice_index),
            f"{prefix}/restart-attempt": "0",
        }
    about = named(name, namespace="default", labels=labels, creationTimestamp=BEGAN)
    container = {"name": "jax", "resources": {"limits": {TPU: 4}}}
    status = {"phase": phase, "startTime": BEGAN, "containerStatuses": [{"name": "jax", "state": {"running": {}}}]}
    return {"kind": "Pod", **about, "spec": {"containers": [container], "nodeName": f"gke-{host}"}, "status": status}


def pods(owner: str) -> list[Object]:
    return [pod(owner, host, slice_index=index) for index in range(2) for host in range(4)]


def node(name: str = "gke-1", ready: str = "True") -> Object:
    found = clusters.node(**{"cloud.google.com/gke-nodepool": "np-0"})
    found["metadata"] |= {"name": name, "uid": name}
    return {**found, "spec": {}, "status": {"conditions": [condition("Ready", status=ready)], "allocatable": {TPU: 4}}}


def busy() -> list[Object]:
    """A queue of xpk: `llama` runs, `eval` waits behind a job of another namespace."""
    return [
        *xpk(),
        jobset("llama", restarts=1),
        workload("llama"),
        *pods("llama"),
        jobset("eval", suspend=True),
        waiting("eval"),
        waiting("theirs", namespace="other", queue="their-queue", priority=9),
        local_queue("their-queue", "cluster-queue", "other"),
    ]
