"""What must hold between a job and the queue that admits it."""

from collections.abc import Iterator, Sequence

from policy.jobs import QUEUE_LABEL, pools_of, slice_jobs
from policy.kueue import cluster_queue_of, configurations, covered, flavors
from policy.resources import JOB_SET, at, every, namespace, object_name, of_kind
from policy.rule import About, Broken, Declared, Group, Level, ResourceRule, Rule, Severity, StackRule
from policy.slices import tpu_pools

_PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
_JOB_SETS = "https://kueue.sigs.k8s.io/docs/tasks/run/jobsets/"


def _label(job_set: Declared, key: str) -> str | None:
    return at(job_set.properties, "metadata", "labels", key)


def _queued(resources: Sequence[Declared]) -> Iterator[Broken]:
    queues = {(namespace(queue), object_name(queue)) for queue in of_kind(resources, "LocalQueue")}
    for job_set in of_kind(resources, "JobSet"):
        name, where = _label(job_set, QUEUE_LABEL), namespace(job_set)
        if (where, name) not in queues:
            here = ", ".join(sorted(queue for place, queue in queues if place == where)) or "none"
            yield Broken(
                f"expected label {QUEUE_LABEL} with a queue of namespace {where!r} ({here}), got {name!r}", job_set.urn
            )


def _left_to_kueue(job_set: Declared) -> Iterator[str]:
    if at(job_set.properties, "spec", "suspend") is not None:
        yield "expected no spec.suspend, which Kueue sets, got one"


def _known_priority(resources: Sequence[Declared]) -> Iterator[Broken]:
    classes = {object_name(found) for found in of_kind(resources, "WorkloadPriorityClass")}
    for job_set in of_kind(resources, "JobSet"):
        name = _label(job_set, _PRIORITY_LABEL)
        if name is not None and name not in classes:
            known = ", ".join(sorted(classes)) or "there is none"
            yield Broken(f"expected a priority class of the stack ({known}), got {name!r}", job_set.urn)


def _covered(resources: Sequence[Declared]) -> Iterator[Broken]:
    known = configurations(resources)
    prefixes = tuple(prefix for settings in known for prefix in every(settings, "resources", "excludeResourcePrefixes"))
    for job in slice_jobs(resources) if known else ():
        queue = cluster_queue_of(job.resource, _label(job.resource, QUEUE_LABEL) or "", resources)
        asked = sorted(name for name in job.requests if not name.startswith(prefixes))
        if queue and (missing := [name for name in asked if name not in covered(queue)]):
            got = ", ".join(sorted(covered(queue))) or "nothing"
            yield job.broken(f"expected queue {object_name(queue)!r} to cover {', '.join(missing)}, got {got}")


def _tolerated(resources: Sequence[Declared]) -> Iterator[Broken]:
    pools, known = tpu_pools(resources), flavors(resources)
    for job in slice_jobs(resources):
        matched = pools_of(job, pools)
        taints = {taint for flavor in known if any(map(flavor.counts, matched)) for taint in flavor.taints}
        if missing := sorted(taint for taint in taints if not job.tolerates(taint)):
            yield job.broken(f"expected tolerations of {', '.join(missing)}, got none")


RULES: tuple[Rule, ...] = (
    StackRule(
        About(
            "job-in-a-queue",
            Group.QUEUE,
            Severity.HIGH,
            Level.MANDATORY,
            "A job names a queue of its namespace",
            "Without one it waits for ever in a namespace that Kueue manages, and elsewhere takes chips past every"
            " quota.",
            "Set job.team to one of the teams.",
            _JOB_SETS,
        ),
        _queued,
    ),
    ResourceRule(
        About(
            "job-left-to-kueue",
            Group.QUEUE,
            Severity.HIGH,
            Level.MANDATORY,
            "A job leaves its start to Kueue",
            "Each `up` would suspend a running job, or start one that Kueue holds back.",
            "Remove spec.suspend from the JobSet.",
            _JOB_SETS,
        ),
        (JOB_SET,),
        _left_to_kueue,
    ),
    StackRule(
        About(
            "priority-exists",
            Group.QUEUE,
            Severity.HIGH,
            Level.MANDATORY,
            "A job's priority class exists",
            "Kueue makes no workload for a job of an unknown class: it is never admitted.",
            "Set job.priority to low, normal or high.",
            "https://kueue.sigs.k8s.io/docs/concepts/workload_priority_class/",
        ),
        _known_priority,
    ),
    StackRule(
        About(
            "requests-covered",
            Group.QUEUE,
            Severity.CRITICAL,
            Level.MANDATORY,
            "The queue covers every resource that a job's pods request, or Kueue leaves it out",
            "One resource that the queue does not count, be it CPU, and the job is never admitted.",
            "Add the resource to the queue's coveredResources, or its prefix to Kueue's excludeResourcePrefixes.",
            "https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/",
        ),
        _covered,
    ),
    StackRule(
        About(
            "job-tolerates-slices",
            Group.QUEUE,
            Severity.CRITICAL,
            Level.MANDATORY,
            "A job tolerates the taints of its slices",
            "Kueue passes over every flavor whose taints a job does not tolerate: it is never admitted.",
            "Let infra.pods render the tolerations from the job's slice groups.",
            "https://kueue.sigs.k8s.io/docs/concepts/resource_flavor/",
        ),
        _tolerated,
    ),
)
