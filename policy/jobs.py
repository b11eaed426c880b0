"""The jobs of a plan that want TPU slices.

Owns how a JobSet says what it wants: which nodes, how many chips, with what of a host. What is wrong
with a job is the business of the rules.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.names import TPU_RESOURCE
from policy.resources import at, chips, every, of_kind
from policy.rule import Broken, Declared
from policy.slices import TpuPool

EXCLUSIVE_TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True)
class SliceJob:
    """A replicated job of a JobSet whose pods request chips: one Job for each slice, one pod for each host."""

    resource: Declared
    """The JobSet."""
    name: str
    """Of the replicated job within it."""
    replicas: int
    job: Any
    """Specification of the Jobs."""
    annotations: Mapping[str, Any]
    """Of the JobSet and of this replicated job."""

    @property
    def pod(self) -> Any:
        """Specification of the pods."""
        return at(self.job, "template", "spec")

    @property
    def containers(self) -> list[Any]:
        return every(self.pod, "containers")

    @property
    def requests(self) -> dict[str, float | str]:
        """What a pod requests; a limit without a request is one, as Kubernetes has it. Chips are summed up."""
        named: dict[str, float | str] = {}
        for container in self.containers:
            named |= at(container, "resources", "limits") or {}
            named |= at(container, "resources", "requests") or {}
        return named | {TPU_RESOURCE: self._chips("requests")}

    @property
    def chip_limit(self) -> float:
        """Chips that the pod may use."""
        return self._chips("limits")

    @property
    def specification(self) -> Any:
        """What the trainer is told: the environment's only variable of JSON with a section `training`."""
        told = (at(variable, "value") for container in self.containers for variable in every(container, "env"))
        read = (_json(value) for value in told if value is not None and value.startswith("{"))
        return next((section for section in read if at(section, "training") is not None), None)

    def may_run_on(self, labels: dict[str, str]) -> bool:
        """Whether node selector and required node affinity let its pods go to nodes with these labels."""
        selector = at(self.pod, "nodeSelector") or {}
        terms = every(self.pod, "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms")
        return all(labels.get(key) == value for key, value in selector.items()) and (
            not terms or any(_matches(term, labels) for term in terms)
        )

    def tolerates(self, taint: str) -> bool:
        """Whether its pods may go to nodes with the taint of this key."""
        return any(at(toleration, "key") in (None, taint) for toleration in every(self.pod, "tolerations"))

    def broken(self, says: str) -> Broken:
        """A fault of this job."""
        return Broken(f"replicated job {self.name!r}: {says}", self.resource.urn)

    def _chips(self, kind: str) -> float:
        other = {"requests": "limits", "limits": "requests"}[kind]
        return sum(
            chips(
                at(container, "resources", kind, TPU_RESOURCE) or at(container, "resources", other, TPU_RESOURCE) or 0
            )
            for container in self.containers
        )


def slice_jobs(resources: Iterable[Declared]) -> list[SliceJob]:
    """All that want chips."""
    found = (
        SliceJob(
            job_set,
            at(job, "name"),
            int(at(job, "replicas") or 1),
            at(job, "template", "spec"),
            _annotations(job_set.properties) | _annotations(at(job, "template")),
        )
        for job_set in of_kind(resources, "JobSet")
        for job in every(job_set.properties, "spec", "replicatedJobs")
    )
    return [job for job in found if job.requests[TPU_RESOURCE]]


def of_jobs(check: Callable[[SliceJob], Iterable[str]]) -> Callable[[Declared], Iterator[str]]:
    """A check of slice jobs as one of JobSets."""

    def checked(resource: Declared) -> Iterator[str]:
        for job in slice_jobs([resource]):
            yield from (job.broken(says).says for says in check(job))

    return checked


def pools_of(job: SliceJob, pools: Iterable[TpuPool]) -> list[TpuPool]:
    """The slices that a job may run on."""
    return [pool for pool in pools if job.may_run_on(pool.labels)]


def _annotations(declared: Any) -> dict[str, Any]:
    return dict(at(declared, "metadata", "annotations") or {})


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _matches(term: Any, labels: dict[str, str]) -> bool:
    """Of the operators the two that say which nodes; any other is taken to match."""
    return all(
        labels.get(at(one, "key")) in every(one, "values")
        if at(one, "operator") == "In"
        else at(one, "operator") != "Exists" or at(one, "key") in labels
        for one in every(term, "matchExpressions")
    )
