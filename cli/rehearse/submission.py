"""Matches a job with the queues of a cluster."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cli.answer import Halt
from cli.rehearse.job_file import Located, SubmittedJob
from infra.cluster.kueue_objects import KueueObjects
from infra.review.admission import manifests
from infra.review.admission.manifests import usable_flavors
from infra.review.admission.situation import Situation, Workload
from infra.stack.manifests import Object
from infra.stack.names import PRIORITY_LABEL, QUEUE_LABEL, TPU_RESOURCE

_DEFAULT_QUEUE = "default"
"""LocalQueue of jobs without a label, if a namespace has it."""
_SYSTEM_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


@dataclass(frozen=True)
class Submission:
    """A job, its ClusterQueue, and the rest of the cluster."""

    job: SubmittedJob
    objects: KueueObjects
    local_queue: Object
    queue: Object
    """Its ClusterQueue."""
    workload: Workload
    situation: Situation
    earlier: frozenset[str]
    """Workloads of the same file that are submitted before it."""
    unknown_priority: str
    """Why its priority is taken for 0. Empty if it is known."""

    @property
    def queue_name(self) -> str:
        return self.queue["metadata"]["name"]

    @property
    def title(self) -> str:
        return f"ClusterQueue {self.queue_name}"

    @property
    def related(self) -> list[Object]:
        """Return its ClusterQueue, and the others of the cohort."""
        return manifests.related(self.objects.lists["clusterqueues"], self.queue_name)

    @property
    def flavors(self) -> frozenset[str]:
        """Return the flavors of its ClusterQueue whose nodes it may use."""
        specs = (pods["spec"] for pods in self.job.pods.values())
        usable = (usable_flavors(spec, self.objects.lists["resourceflavors"]) for spec in specs)
        return frozenset[str]().union(*usable) & {name for name, _ in manifests.quotas(self.queue)}

    @property
    def competing(self) -> Sequence[tuple[str, Object]]:
        """Return the Workloads that have or want quota of the queues of its cohort, each with its ClusterQueue."""
        lists, names = self.objects.lists, {queue["metadata"]["name"] for queue in self.related}
        local = {
            (each["metadata"]["namespace"], each["metadata"]["name"]): each["spec"].get("clusterQueue", "")
            for each in lists["localqueues"]
        }
        found = ((manifests.cluster_queue(each, local), each) for each in lists["workloads"] if manifests.counts(each))
        return [(name, each) for name, each in found if name and name in names]


def errors(job: SubmittedJob, objects: KueueObjects) -> Iterator[Located]:
    """Yield the errors of a job that only the cluster shows."""
    queues, label = _names(objects, "localqueues"), job.labels.get(QUEUE_LABEL)
    if (label or _DEFAULT_QUEUE) not in queues:
        expected = f"a LocalQueue of namespace {objects.namespace} ({', '.join(queues) or 'there are none'})"
        got = repr(label) if label else "no label"
        yield job.error(f"metadata.labels.{QUEUE_LABEL}", expected, got, f"write the label {QUEUE_LABEL}")
    if chosen := _priority_class(job):
        classes = _names(objects, chosen.plural)
        if chosen.plural not in objects.refused and chosen.name not in (*classes, *_SYSTEM_PRIORITIES):
            expected = f"one of the {chosen.plural} {', '.join(classes) or '(there are none)'}"
            yield job.error(chosen.path, expected, repr(chosen.name), "correct it, or create the class")
    if job.name == "*":
        yield job.error("metadata.name", "a name", "nothing", "write metadata.name or metadata.generateName")
    if not any(TPU_RESOURCE in manifests.requests(pods["spec"]) for pods in job.pods.values()):
        yield job.error("spec", f"pods that request {TPU_RESOURCE}", "none", "only jobs on TPUs are simulated")
    # A Workload is known by its JobSet's name, so a Job of that name would be taken for it.
    near = [each["metadata"] for each in objects.lists["workloads"] if each["metadata"]["namespace"] == job.namespace]
    owners = [owner for each in near for owner in each.get("ownerReferences", [])]
    if any(owner["name"] == job.name and owner["kind"] in ("JobSet", job.kind) for owner in owners):
        yield job.error("metadata.name", "a new name", repr(job.name), "rename it, or delete the other job")


def _names(objects: KueueObjects, plural: str) -> list[str]:
    """Return the names of the objects of a kind; of a namespaced kind, those of the namespace."""
    found = [each["metadata"] for each in objects.lists[plural]]
    return [each["name"] for each in found if each.get("namespace") in (None, objects.namespace)]


@dataclass(frozen=True)
class _PriorityClass:
    plural: str
    name: str
    path: str
    """Where the manifest names it."""


def _priority_class(job: SubmittedJob) -> _PriorityClass | None:
    """Return the class with the priority of a job; `None` if it names none."""
    if name := job.labels.get(PRIORITY_LABEL):
        return _PriorityClass("workloadpriorityclasses", name, f"metadata.labels.{PRIORITY_LABEL}")
    for pods in job.pods.values():
        if name := pods["spec"].get("priorityClassName"):
            return _PriorityClass("priorityclasses", name, "spec.replicatedJobs")
    return None


def _priority(job: SubmittedJob, objects: KueueObjects) -> tuple[int, str]:
    """Return the priority of a job, and the right that this user lacks to know it; empty if it is known."""
    chosen = _priority_class(job) or _PriorityClass("priorityclasses", "", "")
    listed = objects.lists[chosen.plural]
    known = {each["metadata"]["name"]: int(each["value"]) for each in listed} | _SYSTEM_PRIORITIES
    default = next((int(each["value"]) for each in listed if each.get("globalDefault")), 0)
    right = objects.refused.get(chosen.plural, "")
    return (known[chosen.name], "") if chosen.name in known else (0 if chosen.name else default, right)


def submit(job: SubmittedJob, objects: KueueObjects, before: Sequence[Workload]) -> Submission:
    """Return a job with the queues that it is submitted to. `before` are the jobs of the file before it.

    Raise Halt if its LocalQueue names a ClusterQueue that does not exist.
    """
    local = objects.named("localqueues", job.labels.get(QUEUE_LABEL) or _DEFAULT_QUEUE)
    assert local, "errors of the job have been reported"
    name = local["spec"].get("clusterQueue", "")
    queue = objects.named("clusterqueues", name)
    if queue is None:
        raise Halt(
            f"expected a ClusterQueue of LocalQueue {local['metadata']['name']}, got {name!r}, which does not exist"
        )
    situation = _situation(objects, name)
    queues = {each.name for each in situation.queues}
    earlier = [each for each in before if each.queue in queues]
    priority, unknown = _priority(job, objects)
    return Submission(
        job=job,
        objects=objects,
        local_queue=local,
        queue=queue,
        workload=manifests.jobset_workload(job.manifest, name, priority, objects.lists["resourceflavors"], time.time()),
        situation=situation.model_copy(update={"workloads": (*situation.workloads, *earlier)}),
        earlier=frozenset(each.name for each in earlier),
        unknown_priority=unknown,
    )


def _situation(objects: KueueObjects, queue: str) -> Situation:
    """Return the queues and workloads that compete with those of a ClusterQueue, without fair sharing."""
    lists = objects.lists
    return manifests.situation(
        manifests.related(lists["clusterqueues"], queue),
        lists["localqueues"],
        lists["resourceflavors"],
        lists["workloads"],
        others_hidden="workloads" in objects.refused,
    )
