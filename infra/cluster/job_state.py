"""The objects of a job in its cluster as values: its JobSet, its Workload, and the resulting state.

Everything is pure. `job_pods` has the pods. Every command and library that shows a job's state uses `state_of`.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from infra.stack.manifests import Condition, Object, amount, condition, conditions, moment, queued_at
from infra.stack.names import (
    GATES,
    HEAD,
    ONLY_JOB,
    QUEUE_LABEL,
    RESTARTS_ANNOTATION,
    SLICES,
    TPU_RESOURCE,
    team_of,
)
from workloads.spec import (
    CALL_SPEC_VARIABLE,
    JOB_FOLDER_VARIABLE,
    JOB_SPEC_VARIABLE,
    METRICS_ADDRESS_VARIABLE,
    present_word,
)

LEADER = f"{SLICES}-0-0"
"""Leader of a job without a head: host 0 of slice 0."""


class State(StrEnum):
    """State of a job, in the order in which the states follow each other."""

    MISSING = "missing"
    """The JobSet does not exist: it was never submitted, or was deleted."""
    QUEUED = "queued"
    EVICTED = "evicted"
    """It ran and was requeued. Its hosts are saving, or it waits."""
    PAUSED = "paused"
    """Its queue is stopped, for example by `paused` in the stack file, and its hosts have ended."""
    DEACTIVATED = "deactivated"
    """Kueue does not admit it again until someone activates its Workload."""
    STARTING = "starting"
    """It has its quota, but some of its hosts or its head do not run yet."""
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The cluster does not answer at the moment."""

    @property
    def is_end(self) -> bool:
        return self in (State.MISSING, State.COMPLETED, State.FAILED)


def state_of(
    terminal: str, workload: "Workload | None", *, suspended: bool, all_run: bool, any_left: bool = False
) -> State:
    """Return the state of a job whose JobSet exists.

    Args:
        terminal: how the JobSet ended, `Completed` or `Failed`; empty before its end.
        workload: Kueue's Workload of the JobSet. `None` if Kueue has none yet, or none is needed because the JobSet is
            not suspended.
        suspended: whether the JobSet is suspended, as Kueue keeps it until admission.
        all_run: whether all its hosts and its head are running or have finished.
        any_left: whether any of them is still running or terminating.
    """
    if terminal:
        return State.COMPLETED if terminal == "Completed" else State.FAILED
    # An evicted job holds its quota until its hosts have ended.
    if (workload.admitted_by and not workload.holds("Evicted")) if workload else not suspended:
        return State.RUNNING if all_run else State.STARTING
    if workload is None:
        return State.QUEUED
    if workload.paused:
        # Kueue frees the quota before the hosts have saved.
        return State.EVICTED if any_left else State.PAUSED
    if not workload.active:
        return State.DEACTIVATED
    return State.EVICTED if workload.holds("Evicted") else State.QUEUED


@dataclass(frozen=True)
class Outcome:
    """The end of a job, as recorded in its JobSet."""

    state: Literal["Completed", "Failed"]
    reason: str = ""
    message: str = ""


DELETED = Outcome("Failed", "Deleted", "the JobSet was deleted while it was watched")


def outcome_of(jobset: Object) -> Outcome | None:
    """Return the end of a job; `None` if it has not ended."""
    state = jobset.get("status", {}).get("terminalState")
    if not state:
        return None
    last = condition(jobset, state)
    return Outcome(state, last.get("reason", ""), last.get("message", ""))


class Kind(StrEnum):
    """Type of program that a job runs."""

    TRAINING = "training"
    """A trainer: that of this repository, or a program that keeps the same records."""
    FUNCTION = "function"
    """A call of a function."""
    CONTAINER = "container"
    """Any other program, whose files and exit codes have no meaning here."""


def kind_of(jobset: Object) -> Kind:
    """Return what a job runs, by the environment variables of its containers."""
    names = _variables(jobset).keys()
    if {JOB_SPEC_VARIABLE, METRICS_ADDRESS_VARIABLE} & names:
        return Kind.TRAINING
    return Kind.FUNCTION if CALL_SPEC_VARIABLE in names else Kind.CONTAINER


def folder_of(jobset: Object) -> str:
    """Return the folder of a job in the checkpoint bucket, by its specification or its variable. Empty: it has none."""
    return url_of(jobset).removeprefix("gs://").partition("/")[2]


def url_of(jobset: Object) -> str:
    """Return the same as a URL such as `gs://BUCKET/FOLDER`. Empty: it has none."""
    return str(_specified(jobset, "storage", "path") or _variables(jobset).get(JOB_FOLDER_VARIABLE, ""))


def existing_run_of(jobset: Object) -> str:
    """Return what a training job does with an existing run, `resume` or `new`. Empty: its program decides."""
    return str(present_word(_specified(jobset, "storage", "existing_run") or ""))


def steps_of(jobset: Object) -> int:
    """Return the number of a training job's last step. 0: only its program knows it."""
    steps = _specified(jobset, "training", "steps")
    return steps if isinstance(steps, int) else 0


def _specified(jobset: Object, section: str, name: str) -> object:
    try:
        return json.loads(_variables(jobset)[JOB_SPEC_VARIABLE])[section][name]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _variables(jobset: Object) -> dict[str, str]:
    """Return the environment variables of all containers of a job. Those that refer to other objects are empty."""
    return {
        variable["name"]: variable.get("value", "")
        for replicated in jobset["spec"]["replicatedJobs"]
        for container in replicated["template"]["spec"]["template"]["spec"]["containers"]
        for variable in container.get("env") or []
    }


def leader_of(jobset: Object) -> str:
    """Return the host whose output is the job's output: its head, or else host 0 of slice 0.

    It is the JobSet's coordinator. In a JobSet without one, such as a handwritten one, it is the head, or else the
    first host of the first replicated job. Empty: the pods of that job have no numbers.
    """
    spec: Mapping[str, Any] = jobset["spec"]
    jobs: Mapping[str, Any] = {job["name"]: job for job in spec["replicatedJobs"]} or {ONLY_JOB: {}}
    leader = spec.get("coordinator") or {"replicatedJob": HEAD if HEAD in jobs else next(iter(jobs))}
    if jobs.get(leader["replicatedJob"], {}).get("template", {}).get("spec", {}).get("completionMode") == "NonIndexed":
        return ""
    return f"{leader['replicatedJob']}-{leader.get('jobIndex', 0)}-{leader.get('podIndex', 0)}"


@dataclass(frozen=True)
class Workload:
    """Kueue's object for a job."""

    name: str
    uid: str
    namespace: str
    queue: str
    """Team that owns its queue, or its ClusterQueue."""
    owner: str
    """Name of the JobSet, or of another object that it admits."""
    priority: int
    chips: int
    created: float
    active: bool
    admitted_by: str
    """ClusterQueue whose quota it holds. Empty while it waits."""
    held_chips: Mapping[str, int]
    """Chips whose quota it holds, by flavor."""
    requeue_at: float | None
    """Time before which Kueue does not retry it; `None` for no such time."""
    evictions: Mapping[str, int]
    """Number of evictions by reason."""
    checks: tuple[tuple[str, str, str], ...]
    """Admission checks that it needs: name, state and message."""
    conditions: tuple["Condition", ...]
    paused: bool = False
    """Whether its LocalQueue is stopped."""
    restarts: str = ""
    """Causes of restarts as commands keep them, see RESTARTS_ANNOTATION."""
    past_seconds: float = 0.0
    """Seconds for which it held its quota before its current admission. Kueue counts them if the job has
    `max_hours`."""
    owner_kind: str = "JobSet"
    """Kind of the object that it admits, such as `Job` or `TrainJob`."""
    requeues: int = 0
    """Number of times that Kueue put it back into its queue because its pods did not become ready."""
    local_queue: str = ""
    gates: str = ""
    """Gates that keep it out of its queue until somebody removes them."""
    queued_at: float = 0.0
    """Time that decides its place among those of the same priority."""

    @property
    def flavors(self) -> tuple[str, ...]:
        """Flavors whose chips it holds."""
        return tuple(self.held_chips)

    def condition(self, kind: str) -> "Condition | None":
        """Return the condition of that kind; `None` if it has none."""
        return next((each for each in self.conditions if each.kind == kind), None)

    def holds(self, kind: str) -> bool:
        found = self.condition(kind)
        return found is not None and found.holds

    def admission(self, at: float) -> tuple[float, float] | None:
        """Return when its latest admission began, and the seconds for which it has held its quota since then until
        `at` or its end. `None` while it holds none."""
        admitted, finished = self.condition("Admitted"), self.condition("Finished")
        if admitted is None or not admitted.holds:
            return None
        end = finished.since if finished and finished.holds else at
        return admitted.since, max(0.0, end - admitted.since)

    @property
    def waits(self) -> bool:
        is_queued = self.active and not self.paused and not self.gates
        return is_queued and not self.admitted_by and not self.holds("Finished")


def workload_of(found: Object, stopped_queues: Collection[str] = ()) -> Workload:
    """Return the Workload as a value; `stopped_queues` are the LocalQueues of its namespace that are stopped."""
    metadata, spec, status = found["metadata"], found["spec"], found.get("status", {})
    admission: dict[str, Any] = status.get("admission") or {}
    owners = owners_of(found)
    requeue: dict[str, Any] = status.get("requeueState") or {}
    evictions: Counter[str] = Counter()
    for each in (status.get("schedulingStats") or {}).get("evictions", []):
        evictions[each["reason"]] += int(each.get("count", 0))
    checks: list[dict[str, str]] = status.get("admissionChecks", [])
    return Workload(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        namespace=metadata.get("namespace", ""),
        queue=team_of(spec.get("queueName", "")),
        owner=owners[0]["name"] if owners else "",
        priority=spec.get("priority", 0),
        chips=sum(map(_chips, spec.get("podSets", []))),
        created=moment(metadata, "creationTimestamp", 0.0),
        active=spec.get("active", True),
        admitted_by=admission.get("clusterQueue", ""),
        held_chips=_held_chips(spec.get("podSets", []), admission.get("podSetAssignments", [])),
        requeue_at=moment(requeue, "requeueAt", 0.0) or None,
        evictions=dict(evictions),
        checks=tuple((each["name"], each.get("state", ""), each.get("message", "")) for each in checks),
        conditions=conditions(found),
        paused=spec.get("queueName") in stopped_queues,
        restarts=metadata.get("annotations", {}).get(RESTARTS_ANNOTATION, ""),
        past_seconds=float(status.get("accumulatedPastExecutionTimeSeconds", 0)),
        owner_kind=owners[0].get("kind", "") if owners else "Workload",
        requeues=int(requeue.get("count", 0)),
        local_queue=spec.get("queueName", ""),
        gates=metadata.get("annotations", {}).get(GATES, ""),
        queued_at=queued_at(found),
    )


def owners_of(found: Object) -> list[dict[str, str]]:
    """Return the owner references of an object, that of its controller first."""
    listed: list[dict[str, str]] = found["metadata"].get("ownerReferences", [])
    return sorted(listed, key=lambda owner: not owner.get("controller"))


def _held_chips(podsets: Iterable[Mapping[str, Any]], assigned: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    templates, held = {each.get("name", ""): each for each in podsets}, Counter[str]()
    for each in assigned:
        if flavor := each.get("flavors", {}).get(TPU_RESOURCE):
            # Kueue may admit fewer pods than a pod set asks for.
            asked = {**templates.get(each.get("name", ""), {}), **({"count": each["count"]} if "count" in each else {})}
            held[flavor] += int(amount(each.get("resourceUsage", {}).get(TPU_RESOURCE, _chips(asked))))
    return dict(held)


def _chips(podset: Mapping[str, Any]) -> int:
    return chips_of(podset.get("template", {})) * podset.get("count", 1)


def chips_of(template: Object) -> int:
    """Return the chips that a pod of a template requests."""
    resources = [each.get("resources", {}) for each in template.get("spec", {}).get("containers", [])]
    asked = [{**each.get("limits", {}), **each.get("requests", {})}.get(TPU_RESOURCE, 0) for each in resources]
    return int(sum(map(amount, asked)))


_ENDS = {"Complete": "Completed", "Failed": "Failed"}
"""Condition types of a batch Job that has ended, and those of a JobSet."""


def as_jobset(found: Object) -> Object:
    """Return a batch Job as a JobSet with one replicated job, and a JobSet itself. Either may be half deleted."""
    spec, status = found.get("spec", {}), found.get("status", {})
    if "replicatedJobs" in spec:
        complete = [job for job in spec["replicatedJobs"] if _containers(job)]
        return {**found, "spec": {**spec, "replicatedJobs": complete}, "status": status}
    listed = [{**each, "type": _ENDS.get(each["type"], each["type"])} for each in status.get("conditions", [])]
    ends = [each["type"] for each in listed if each["type"] in _ENDS.values() and each.get("status") == "True"]
    only = {"name": ONLY_JOB, "template": {"spec": spec}}
    return {
        **found,
        "spec": {"suspend": spec.get("suspend", False), "replicatedJobs": [only] if _containers(only) else []},
        "status": {"conditions": listed, **({"terminalState": ends[0]} if ends else {})},
    }


def jobset_of(workload: Object) -> Object:
    """Return a JobSet with the pods of a Workload, for an object of which nothing else is known."""
    metadata, spec, owners = workload["metadata"], workload.get("spec", {}), owners_of(workload)
    # The Workload of a group of pods is owned by each of them.
    owner = owners[0] if len(owners) == 1 or any(each.get("controller") for each in owners) else metadata
    jobs = [
        {
            "name": pods["name"],
            "template": {"spec": {"parallelism": pods.get("count", 1), "template": pods.get("template", {})}},
        }
        for pods in spec.get("podSets", [])
    ]
    finished = condition(workload, "Finished")
    end = ("Failed" if finished.get("reason") == "Failed" else "Completed") if finished.get("status") == "True" else ""
    own = {key: metadata[key] for key in ("namespace", "creationTimestamp", "deletionTimestamp") if key in metadata}
    about = {"name": owner["name"], "uid": owner.get("uid", ""), "labels": {QUEUE_LABEL: spec.get("queueName", "")}}
    return {
        "metadata": {**own, **about},
        "spec": {"replicatedJobs": [job for job in jobs if _containers(job)]},
        "status": {"conditions": [{**finished, "type": end}], "terminalState": end} if end else {},
    }


def _containers(job: Mapping[str, Any]) -> list[Any]:
    """Return the containers of a replicated job. It has none if the object is half deleted."""
    return job.get("template", {}).get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
