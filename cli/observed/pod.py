"""A host of a job: its pod, as the API server tells of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cli.observed.objects import Object, condition, moment
from infra.kubernetes import ApiServer, Json
from infra.names import (
    ATTEMPT_LABEL,
    COMPLETION_INDEX_LABEL,
    HEAD,
    JOB_INDEX_LABEL,
    JOBSET_LABEL,
    PODS,
    REPLICATED_JOB_LABEL,
    SLICES,
)

PodKey = tuple[str, int, int]
"""Replicated job, slice and host of a pod. In this order a head comes before all slices."""

LEADER = f"{SLICES}-0-0"
"""Who leads a job that has no head: host 0 of slice 0."""


@dataclass(frozen=True)
class Pod:
    """The newest pod of one host."""

    name: str
    uid: str
    namespace: str
    host: str
    """Its name within the JobSet, see `host_of`."""
    phase: str
    """Pod phase, or `Terminating`."""
    node: str
    attempt: int
    """How often the JobSet had restarted when this pod was made."""
    created: float
    started: float | None
    exit_code: int | None
    waits_for: str
    """Why the scheduler has no node for it yet; empty when it has one, or has not looked."""
    held_up: str = ""
    """Why its container does not start although it has a node, such as an image that cannot be pulled."""
    ended_for: str = ""
    """Why the cluster, and not its program, ended it, such as preemption or a lost node."""
    ended: float | None = None
    """When its container did; None: it has not, or nobody says when."""

    @property
    def is_head(self) -> bool:
        """Whether it is the head of a job that has one, and so on no host of a slice."""
        return self.host.rsplit("-", 2)[0] == HEAD


def key_of(found: Object) -> PodKey:
    """Which host of its JobSet the pod is."""
    labels = found["metadata"]["labels"]
    return labels[REPLICATED_JOB_LABEL], int(labels[JOB_INDEX_LABEL]), int(labels[COMPLETION_INDEX_LABEL])


def host_of(found: Object) -> str:
    """`<replicated job>-<slice>-<host>`, the name of the host within its JobSet."""
    labels = found["metadata"]["labels"]
    return "-".join(labels[label] for label in (REPLICATED_JOB_LABEL, JOB_INDEX_LABEL, COMPLETION_INDEX_LABEL))


def leader_of(jobset: Object) -> str:
    """The host whose output is the job's: its head, or else host 0 of slice 0.

    A JobSet says so by its coordinator. One by hand may name none; its head leads then, or what it lists first.
    """
    spec: Mapping[str, Any] = jobset["spec"]
    names: list[str] = [job["name"] for job in spec["replicatedJobs"]]
    told = spec.get("coordinator") or {"replicatedJob": HEAD if HEAD in names else names[0]}
    return f"{told['replicatedJob']}-{told.get('jobIndex', 0)}-{told.get('podIndex', 0)}"


def pod_of(found: Object, at: float) -> Pod:
    """The pod of a JobSet; `at` stands for times that it does not tell."""
    metadata, status = found["metadata"], found.get("status", {})
    labels = metadata["labels"]
    states = [container["state"] for container in status.get("containerStatuses", [])] + _unfinished(status)
    ends = [state["terminated"] for state in states if "terminated" in state]
    phase = status.get("phase", "Pending")
    leaving = "deletionTimestamp" in metadata and phase not in ("Failed", "Succeeded")
    return Pod(
        name=metadata["name"],
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        host=host_of(found),
        phase="Terminating" if leaving else phase,
        node=found["spec"].get("nodeName", ""),
        attempt=int(labels[ATTEMPT_LABEL]),
        created=moment(metadata, "creationTimestamp", at),
        started=moment(status, "startTime", at) if "startTime" in status else None,
        exit_code=max((end["exitCode"] for end in ends), default=None),
        waits_for=condition(found, "PodScheduled").get("message", ""),
        held_up=_held_up(states),
        ended_for=_ended_for(found),
        ended=min((moment(end, "finishedAt", at) for end in ends), default=None),
    )


def newest(pods: Iterable[Object], at: float) -> tuple[Pod, ...]:
    """The newest pod of each host, a head before all others, then in the order of slices and hosts."""
    found: dict[PodKey, Pod] = {}
    for each in pods:
        key = key_of(each)
        pod, known = pod_of(each, at), found.get(key)
        if known is None or (pod.attempt, pod.created) > (known.attempt, known.created):
            found[key] = pod
    return tuple(found[key] for key in sorted(found))


def pods_of(api: ApiServer, namespace: str, jobset: str) -> list[Json]:
    """The pods of a job, also those that are leaving.

    Raises:
        ApiError, urllib3.exceptions.HTTPError, OSError: the API server does not tell.
    """
    selector = {"labelSelector": f"{JOBSET_LABEL}={jobset}"}
    return api.request("GET", PODS.format(namespace), query=selector)["items"]


def _unfinished(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """States of init containers that keep the others from starting, or have failed."""
    states: list[Mapping[str, Any]] = [container["state"] for container in status.get("initContainerStatuses", [])]
    return [state for state in states if "waiting" in state or state.get("terminated", {}).get("exitCode")]


def _held_up(states: list[Mapping[str, Any]]) -> str:
    waiting = [state["waiting"] for state in states if "waiting" in state]
    told = [wait for wait in waiting if wait.get("reason") not in (None, "ContainerCreating", "PodInitializing")]
    return ": ".join(part for wait in told[:1] for part in (wait["reason"], wait.get("message", "")) if part)


def _ended_for(found: Object) -> str:
    disruption = condition(found, "DisruptionTarget")
    told = [disruption.get("reason", ""), disruption.get("message", "")]
    if not any(told):
        status = found.get("status", {})
        told = [status.get("reason", ""), status.get("message", "")]
    return ": ".join(part for part in told if part)
