"""A cluster that others made, with jobs, as Kubernetes objects in few words."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.cli.rehearse.clusters import TPU, V6E, Object, cluster_queue, local_queue, named

ACCELERATOR, TOPOLOGY = V6E
V5P = {ACCELERATOR: "tpu-v5p-slice", TOPOLOGY: "2x2x1"}
SPOT = {"cloud.google.com/gke-spot": "true"}
TAINT = {"key": TPU, "value": "present", "effect": "NoSchedule"}
CONFIGURATIONS: Mapping[str, Object] = {
    "usual": {"resources": {"excludeResourcePrefixes": ["ephemeral-storage"]}},
    "fair": {
        "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]},
        "resources": {"quotaCheckStrategy": "IgnoreUndeclared"},
    },
}
"""Keys of Kueue's configuration other than in its chart, by name of the configuration."""
_API = "kueue.x-k8s.io/v1beta2"


@dataclass(frozen=True)
class Case:
    """A cluster and the next job."""

    name: str
    objects: list[Object]
    jobs: tuple[Object, ...]
    """In the order in which they are submitted, before `changes`."""
    next: Object
    changes: tuple[Object, ...] = ()
    """What is changed when the jobs run or wait: kind, name and some fields."""
    unknown: tuple[str, ...] = ()
    """Parts of the reasons why the outcome is not known. Empty: it is known."""
    config: str = "usual"


def pod(chips: int, *, select: Mapping[str, str] = V6E, **more: Any) -> Object:
    """A pod with one container. `more` are limits and requests besides chips, and fields of the pod."""
    limits = {**({TPU: chips} if chips else {}), **more.pop("limits", {})}
    container = {"name": "main", "image": "none", "resources": {"limits": limits, "requests": more.pop("requests", {})}}
    return {"restartPolicy": "Never", "nodeSelector": select, "containers": [container], **more}


def job(
    name: str, *pods: Object | int, queue: str = "user-queue", priority: str = "", count: int = 1, **metadata: Any
) -> Object:
    """A JobSet with one replicated job for each pod, or number of chips."""
    sets = [pod(each) if isinstance(each, int) else each for each in pods]
    labels = {"kueue.x-k8s.io/queue-name": queue} | ({"kueue.x-k8s.io/priority-class": priority} if priority else {})
    jobs = [
        {"name": f"set{index}", "replicas": count, "template": {"spec": _job_spec(each, metadata.get("pods", {}))}}
        for index, each in enumerate(sets)
    ]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "labels": labels, "annotations": metadata.get("annotations", {})},
        "spec": {"replicatedJobs": jobs},
    }


def _job_spec(pods: Object, annotations: Object) -> Object:
    template = {"metadata": {"annotations": annotations}, "spec": pods}
    return {"parallelism": 1, "completions": 1, "backoffLimit": 0, "template": template}


def plain_job(name: str, chips: int, pods: int = 1, priority: str = "", **annotations: str) -> Object:
    """A Job of Kubernetes with `pods` pods of `chips` chips."""
    made = job(name, chips, priority=priority)
    spec = {**_job_spec(pod(chips), {}), "parallelism": pods, "completions": pods}
    metadata = {**made["metadata"], "annotations": {f"kueue.x-k8s.io/{key}": each for key, each in annotations.items()}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def bare(name: str, chips: int, priority: int = 0, **pods: Any) -> Object:
    """A Workload as a controller makes it of a job of another kind, such as TrainJob."""
    counted = {"name": "node", "count": 1, "template": {"spec": pod(chips)}, **pods}
    spec = {"queueName": "user-queue", "priority": priority, "podSets": [counted]}
    return {"apiVersion": _API, "kind": "Workload", **named(name, namespace="default"), "spec": spec}


def flavor(name: str, labels: Mapping[str, str] = V6E, **spec: Any) -> Object:
    return {"kind": "ResourceFlavor", **named(name), "spec": {"nodeLabels": labels, **spec}}


def cohort(name: str, **spec: Any) -> Object:
    return {"kind": "Cohort", **named(name), "spec": spec}


def queue(chips: int | Mapping[str, Any] = 16, name: str = "cluster-queue", **spec: Any) -> Object:
    """A queue with chips of the flavor `tpu`, or quotas by flavor."""
    quotas = {"tpu": chips} if isinstance(chips, int) else chips
    made = cluster_queue(name, {TPU: {flavor: 0 for flavor in quotas}}, **{"namespaceSelector": {}, **spec})
    for each in made["spec"]["resourceGroups"][0]["flavors"]:
        quota = quotas[each["name"]]
        each["resources"][0] |= quota if isinstance(quota, Mapping) else {"nominalQuota": quota}
    return made


USER = local_queue("user-queue", "cluster-queue")
OTHERS = local_queue("other-queue", "other")
"""The LocalQueue of the ClusterQueue `other`."""
CLASSES = [
    {"kind": "WorkloadPriorityClass", **named(name), "value": value} for name, value in (("low", 100), ("high", 1000))
]
ONE = [flavor("tpu"), USER, *CLASSES]
"""Everything but the ClusterQueue."""
WITHIN: Any = {"preemption": {"withinClusterQueue": "LowerPriority"}}


def one(chips: int | Mapping[str, Any] = 16, **spec: Any) -> list[Object]:
    """A cluster with one queue."""
    return [*ONE, queue(chips, **spec)]


def two(own: int | Mapping[str, Any], other: int | Mapping[str, Any], /, **spec: Any) -> list[Object]:
    """A cluster with two queues in a cohort, of which nobody made an object."""
    lends = spec.pop("other", {})
    return [*ONE, OTHERS, queue(own, cohortName="team", **spec), queue(other, "other", cohortName="team", **lends)]


def other(name: str, chips: int, priority: str = "", **more: Any) -> Object:
    """A job in the other queue."""
    return job(name, chips, queue="other-queue", priority=priority, **more)


NEXT = job("next", 8)
URGENT = job("next", 16, priority="high")


def limited(chips: int, **limits: int) -> Object:
    return {"tpu": {"nominalQuota": chips, **limits}}


def affinity(operator: str, value: str) -> Object:
    rule = {"key": next(iter(SPOT)), "operator": operator, "values": [value]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def third(chips: int) -> list[Object]:
    return [queue(chips, "third", cohortName="team"), local_queue("third-queue", "third")]
