"""Reads the jobs of a manifest file, as far as Kueue looks at them, and matches each with the queues of a cluster."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, NotRequired, Required, TypedDict, cast

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from cli import stack_file
from cli.answer import Halt
from infra.cluster.kueue_objects import KueueObjects
from infra.review.admission import manifests
from infra.review.admission.manifests import usable_flavors
from infra.review.admission.situation import Situation, Workload
from infra.stack.manifests import Object, amount, related, requests
from infra.stack.names import JOBSET_API_VERSION, PRIORITY_LABEL, QUEUE_LABEL, TPU_RESOURCE
from infra.stack.settings.errors import FieldError, count_errors, expectation, show
from infra.stack.settings.yaml_file import YamlFile, read_documents, shown

# The keys are those of Kubernetes, and each type fits into a line.
# ruff: noqa: UP013


type Located = tuple[int, str]
"""Line and text of an error."""
_JOB = {"apiVersion": "batch/v1", "kind": "Job"}
_JOBSET = {"apiVersion": JOBSET_API_VERSION, "kind": "JobSet"}
_WANTED = "manifests of JobSets, as for `kubectl create -f`"


def _is_quantity(written: Any) -> Any:
    try:
        amount(written)
    except ValueError:
        raise ValueError("a quantity such as 4, 500m or 2Gi") from None
    return written


def _has_values(rule: Object) -> Object:
    values = rule.get("values", [])
    if rule["operator"] in ("In", "NotIn") and not values:
        raise ValueError("a rule with values")
    if rule["operator"] in ("Gt", "Lt") and len(values) != 1:
        raise ValueError("a rule with one value")
    return rule


type _Quantities = dict[str, Annotated[Any, AfterValidator(_is_quantity)]]
type _Texts = dict[str, str]
type _Count = Annotated[int, Field(ge=0)]
type _Operator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]


_Metadata = TypedDict(
    "_Metadata",
    {"name": str, "generateName": str, "namespace": str, "labels": _Texts, "annotations": _Texts},
    total=False,
)
_Resources = TypedDict("_Resources", {"requests": _Quantities, "limits": _Quantities}, total=False)
_Container = TypedDict("_Container", {"resources": _Resources, "restartPolicy": str}, total=False)
_Rule = TypedDict("_Rule", {"key": str, "operator": _Operator, "values": NotRequired[list[str]]})
_Term = TypedDict("_Term", {"matchExpressions": list[Annotated[_Rule, AfterValidator(_has_values)]]}, total=False)
_Terms = TypedDict("_Terms", {"nodeSelectorTerms": list[_Term]})
_NodeAffinity = TypedDict("_NodeAffinity", {"requiredDuringSchedulingIgnoredDuringExecution": _Terms}, total=False)
_Affinity = TypedDict("_Affinity", {"nodeAffinity": _NodeAffinity}, total=False)
_PodSpec = TypedDict(
    "_PodSpec",
    {
        "containers": Required[Annotated[list[_Container], Field(min_length=1)]],
        "initContainers": list[_Container],
        "nodeSelector": _Texts,
        "affinity": _Affinity,
        "tolerations": list[dict[Literal["key", "operator", "value", "effect", "tolerationSeconds"], Any]],
        "priorityClassName": str,
        "runtimeClassName": str,
        "resourceClaims": list[Any],
    },
    total=False,
)
_PodTemplate = TypedDict("_PodTemplate", {"metadata": NotRequired[_Metadata], "spec": _PodSpec})
_JobSpec = TypedDict(
    "_JobSpec",
    {"parallelism": _Count, "completions": _Count, "template": Required[_PodTemplate], "managedBy": str},
    total=False,
)
_JobTemplate = TypedDict("_JobTemplate", {"spec": _JobSpec})
_ReplicatedJob = TypedDict("_ReplicatedJob", {"name": str, "replicas": NotRequired[_Count], "template": _JobTemplate})
_JobSetSpec = TypedDict(
    "_JobSetSpec",
    {"replicatedJobs": Annotated[list[_ReplicatedJob], Field(min_length=1)], "managedBy": NotRequired[str]},
)
_SCHEMAS: Mapping[str, Any] = {
    "Job": TypedDict("_Job", {"metadata": _Metadata, "spec": _JobSpec}),
    "JobSet": TypedDict("_JobSet", {"metadata": _Metadata, "spec": _JobSetSpec}),
}
"""Types of the keys that Kueue looks at, by kind. The API server checks the others."""


@dataclass(frozen=True)
class SubmittedJob:
    """A JobSet or Job of a file."""

    manifest: Object
    """A JobSet. A Job is a JobSet with one replicated job."""
    kind: str
    file: YamlFile

    @property
    def metadata(self) -> Object:
        return self.manifest["metadata"]

    @property
    def name(self) -> str:
        return self.metadata["name"]

    @property
    def namespace(self) -> str:
        return self.metadata["namespace"]

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.get("labels", {})

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.metadata.get("annotations", {})

    @property
    def pods(self) -> Mapping[str, Object]:
        """Return the pod templates by the name of the replicated job."""
        return {each["name"]: each["template"]["spec"]["template"] for each in self.manifest["spec"]["replicatedJobs"]}

    def error(self, path: str, expected: str, got: str, fix: str) -> Located:
        return _located(self.file, FieldError(path, expected, got, fix))


@dataclass(frozen=True)
class JobFile:
    """The jobs of a file."""

    path: Path
    namespace: str
    jobs: tuple[SubmittedJob, ...]
    left_out: tuple[str, ...]
    """Kind and name of its other objects."""
    errors: tuple[Located, ...]

    def refuse(self, errors: Iterable[Located]) -> NoReturn:
        """Raise Halt with all errors."""
        found = [f"{shown(self.path)}:{line}: {text}" for line, text in sorted({*self.errors, *errors})]
        raise Halt("\n".join([*found, f"{count_errors(len(found))} in {shown(self.path)}"]))


def read(path: Path, namespace: str | None, default: str) -> JobFile:
    """Return the jobs of a file, or of standard input if the path is `-`.

    `namespace` is the one of the command line, and `default` the one of the kubeconfig's context. Raise Halt if the
    file cannot be read or has no job.
    """
    jobs: list[SubmittedJob] = []
    left_out: list[str] = []
    errors: list[Located] = []
    for file in stack_file.opened_by(read_documents, path, _WANTED):
        errors += file.errors
        found = _without_nulls(file.content)
        if not isinstance(found, dict):
            left_out += [show(cast(object, found))] if found is not None else []
            continue
        content = cast(dict[str, Any], found)
        if {key: content.get(key) for key in _JOB} not in (_JOB, _JOBSET):
            left_out.append(
                f"{content.get('kind', 'an object without a kind')} {_metadata(content).get('name', '')}".rstrip()
            )
            continue
        try:
            job = _job(content, file, namespace or default)
            if job.name in [other.name for other in jobs]:
                errors.append(job.error("metadata.name", "a name for each job", repr(job.name), "write two files"))
            jobs.append(job)
        except ValidationError as error:
            errors += _errors(file, error)
    if not jobs and not errors:
        raise Halt(f"expected {_WANTED}, got {', '.join(left_out) or 'no object'} in {shown(path)}")
    expected = namespace or (jobs[0].namespace if jobs else default)
    for job in jobs:
        if job.namespace != expected:
            fix = f"pass --namespace {job.namespace}" if namespace else "write a file for each namespace"
            errors.append(job.error("metadata.namespace", expected, job.namespace, fix))
    return JobFile(path, expected, tuple(jobs), tuple(left_out), tuple(errors))


def _metadata(content: Object) -> Object:
    return content["metadata"] if isinstance(content.get("metadata"), dict) else {}


def _job(content: dict[str, Any], file: YamlFile, namespace: str) -> SubmittedJob:
    """Return a JobSet or Job. Raise ValidationError if it has errors."""
    kind = content["kind"]
    found = TypeAdapter(_SCHEMAS[kind]).validate_python(content, strict=True)
    if kind == "Job":
        only = {"name": "main", "template": {"spec": found["spec"]}}
        found["spec"] = {"replicatedJobs": [only], "managedBy": found["spec"].get("managedBy", "")}
    metadata = found["metadata"]
    # The API server adds characters to the prefix.
    name = metadata.get("name") or f"{metadata.get('generateName', '')}*"
    return SubmittedJob({**found, "metadata": {"namespace": namespace, **metadata, "name": name}}, kind, file)


def _errors(file: YamlFile, error: ValidationError) -> Iterator[Located]:
    for each in error.errors():
        path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in each["loc"]).removeprefix(".")
        got = show(each["input"])
        if each["type"] == "missing":
            yield _located(file, FieldError(path, "a value", "nothing", "add it"))
        else:
            yield _located(file, FieldError(path, expectation(each["msg"]), got, "correct it"))


def _located(file: YamlFile, error: FieldError) -> Located:
    return file.lines.find(error.path), str(error)


def _without_nulls(value: Any) -> Any:
    """Return a value without the keys whose value is null, which the API server ignores."""
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in cast(Object, value).items() if each is not None}
    return [_without_nulls(each) for each in cast(list[Any], value)] if isinstance(value, list) else value


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
        return related(self.objects.lists["clusterqueues"], self.queue_name)

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
    if not any(TPU_RESOURCE in requests(pods["spec"]) for pods in job.pods.values()):
        yield job.error("spec", f"pods that request {TPU_RESOURCE}", "none", "only jobs on TPUs are simulated")
    # A Workload is known by its JobSet's name, so a Job of that name would be taken for it.
    near = [each["metadata"] for each in objects.lists["workloads"] if each["metadata"]["namespace"] == job.namespace]
    owners = [owner for each in near for owner in each.get("ownerReferences", [])]
    if any(owner["name"] == job.name and owner["kind"] in ("JobSet", job.kind) for owner in owners):
        yield job.error("metadata.name", "a new name", repr(job.name), "rename it, or delete the other job")


def _names(objects: KueueObjects, plural: str) -> list[str]:
    found = [each["metadata"] for each in objects.lists[plural]]
    return [each["name"] for each in found if each.get("namespace") in (None, objects.namespace)]


@dataclass(frozen=True)
class _PriorityClass:
    plural: str
    name: str
    path: str
    """Where the manifest names it."""


def _priority_class(job: SubmittedJob) -> _PriorityClass | None:
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
        related(lists["clusterqueues"], queue),
        lists["localqueues"],
        lists["resourceflavors"],
        lists["workloads"],
        others_hidden="workloads" in objects.refused,
    )
