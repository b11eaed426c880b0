"""The pods that an object of Kubernetes declares.

Owns where each kind keeps its pod template. What pods must be is in `pods`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from policy.resources import JOB_SET, at
from policy.rule import Declared

JOB = "kubernetes:batch/v1:Job"
CRON_JOB = "kubernetes:batch/v1:CronJob"
POD = "kubernetes:core/v1:Pod"

_TEMPLATES = {
    POD: "spec",
    JOB: "spec.template.spec",
    CRON_JOB: "spec.jobTemplate.spec.template.spec",
    "kubernetes:core/v1:ReplicationController": "spec.template.spec",
    "kubernetes:apps/v1:DaemonSet": "spec.template.spec",
    "kubernetes:apps/v1:Deployment": "spec.template.spec",
    "kubernetes:apps/v1:ReplicaSet": "spec.template.spec",
    "kubernetes:apps/v1:StatefulSet": "spec.template.spec",
}
OBJECTS_WITH_PODS = (*_TEMPLATES, JOB_SET)
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")

type Part = Mapping[str, Any]


def pods(declared: Declared) -> Iterator[Part]:
    """The specs of its pods; of a JobSet one for each of its replicated jobs."""
    if declared.type == JOB_SET:
        for job in at(declared.properties, "spec", "replicatedJobs") or ():
            yield at(job, "template", "spec", "template", "spec") or {}
    else:
        yield at(declared.properties, *_TEMPLATES[declared.type].split(".")) or {}


def containers(declared: Declared) -> Iterator[Part]:
    """The containers of its pods, those that run first among them."""
    for pod in pods(declared):
        yield from containers_of(pod)


def containers_of(pod: Part) -> Iterator[Part]:
    """The containers of one pod."""
    for kind in _CONTAINERS:
        yield from pod.get(kind) or ()
