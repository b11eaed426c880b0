"""The pods of a job as values: their hosts, how they ended, why they do not run, and how often they restarted."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from infra.cluster.kubernetes import ApiServer, Json
from infra.stack.manifests import Object, condition, moment
from infra.stack.names import (
    ATTEMPT_LABEL,
    COMPLETION_INDEX_LABEL,
    HEAD,
    JOB_ATTEMPT_LABEL,
    JOB_INDEX_LABEL,
    JOB_NAME_LABEL,
    JOBSET_LABEL,
    ONLY_JOB,
    PODS,
    REPLICATED_JOB_LABEL,
)

POD_LABELS = {"JobSet": JOBSET_LABEL, "Job": JOB_NAME_LABEL}
_UP = ("Running", "Succeeded")


@dataclass(frozen=True)
class Pod:
    """The newest pod of one host."""

    name: str
    uid: str
    namespace: str
    host: str
    """Host name within the JobSet, see `host_of`."""
    phase: str
    """Pod phase, or `Terminating`."""
    node: str
    attempt: int
    """Number of restarts of the job before it ended, as the cluster knows it: see `restarts_before`."""
    created: float
    started: float | None
    exit_code: int | None
    waits_for: str
    """Why the scheduler has no node for it. Empty if it has a node, or has not been considered yet."""
    held_up: str = ""
    """Why its container does not start although it has a node, for example an image that cannot be pulled."""
    ended_for: str = ""
    """Why the cluster, not its program, ended it, for example preemption or a lost node."""
    refused: str = ""
    """Why its node refused it before any container started."""
    ended: float | None = None
    """Time at which its container ended; `None` if it still runs, or the time is unknown."""
    without_chips: bool = False
    """Whether it requests no chips, unlike other pods of its job."""

    @property
    def is_head(self) -> bool:
        """Return whether it is the head of the job, and so not a host of a slice."""
        return self.without_chips or self.replicated_job == HEAD

    @property
    def replicated_job(self) -> str:
        """Return the name of its replicated job."""
        return self.host.rsplit("-", 2)[0]

    @property
    def slice(self) -> int:
        """Return the index of its slice."""
        return int(self.host.rsplit("-", 2)[1])

    @property
    def until(self) -> float | None:
        """Return the time at which it ended or was refused; `None` if it may still run."""
        return self.created if self.refused else self.ended

    @property
    def is_up(self) -> bool:
        return self.phase in _UP


def host_of(pod: Object) -> str:
    """Return the name of the pod's host within its JobSet: `<replicated job>-<slice>-<host>`.

    Pods of a Job that is not indexed have no number. The random end of the pod's name is then that of its host.
    """
    labels, random = pod["metadata"]["labels"], pod["metadata"]["name"].rpartition("-")[2]
    host = labels.get(COMPLETION_INDEX_LABEL, random)
    return f"{labels.get(REPLICATED_JOB_LABEL, ONLY_JOB)}-{_number(labels, JOB_INDEX_LABEL)}-{host}"


def restarts_before(found: Object) -> int:
    """Return the number of restarts of the JobSet, and of the single Job, before a Job or its pod was created."""
    labels = found["metadata"]["labels"]
    return _number(labels, ATTEMPT_LABEL) + _number(labels, JOB_ATTEMPT_LABEL)


def job_restarts(jobset: Object) -> dict[str, int]:
    """Return how often single Jobs restarted, by the name of the Job."""
    listed: list[dict[str, Any]] = jobset.get("status", {}).get("replicatedJobsStatus", [])
    return {
        f"{jobset['metadata']['name']}-{each['name']}-{index}": count
        for each in listed
        for index, count in enumerate(each.get("jobRestarts", ()))
    }


def restarts_counted(status: Mapping[str, Any]) -> int:
    """Return how many restarts by JobSet count, of all slices and of single ones, by the status of the JobSet."""
    single = (sum(each.get("jobRestartsCountTowardsMax", ())) for each in status.get("replicatedJobsStatus", ()))
    return status.get("restartsCountTowardsMax", 0) + sum(single)


def names_of(jobset: Object) -> tuple[set[str], set[str]]:
    """Return the names of the JobSet's Jobs, and those of its pods without their random suffixes."""
    jobs: set[str] = set()
    pods: set[str] = set()
    for job in jobset["spec"]["replicatedJobs"]:
        for index in range(job.get("replicas", 1)):
            name = f"{jobset['metadata']['name']}-{job['name']}-{index}"
            jobs.add(name)
            pods |= {f"{name}-{host}" for host in range(job["template"]["spec"].get("parallelism", 1))}
    return jobs, pods


def _number(labels: Mapping[str, str], label: str) -> int:
    """Return the number in a label that JobSet gives to pods, 0 if it has none."""
    written = labels.get(label, "")
    return int(written) if written.isdecimal() else 0


def pod_of(found: Object, at: float) -> Pod:
    """Return the pod as a value; `at` replaces missing times."""
    metadata, status = found["metadata"], found.get("status", {})
    states = _states(status, "containerStatuses") + _find_unfinished(status)
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
        attempt=restarts_before(found),
        created=moment(metadata, "creationTimestamp", at),
        started=moment(status, "startTime", at) if "startTime" in status else None,
        exit_code=max((end["exitCode"] for end in ends), default=None),
        waits_for=condition(found, "PodScheduled").get("message", ""),
        held_up=_held_up(states),
        ended_for=_ended_for(found),
        refused=_refused(found),
        ended=min((moment(end, "finishedAt", at) for end in ends), default=None),
    )


def newest(pods: Iterable[Object], at: float) -> tuple[Pod, ...]:
    """Return the newest pod of each host: a head first, then in the order of slices and hosts."""
    found: dict[tuple[str, int, int, str], Pod] = {}
    for each in pods:
        labels, pod = each["metadata"]["labels"], pod_of(each, at)
        # In this order a head precedes all slices.
        key = pod.replicated_job, pod.slice, _number(labels, COMPLETION_INDEX_LABEL), pod.host
        known = found.get(key)
        if known is None or (pod.attempt, pod.created) > (known.attempt, known.created):
            found[key] = pod
    return tuple(found[key] for key in sorted(found))


def pods_of(api: ApiServer, namespace: str, job: str, kind: str = "JobSet") -> list[Json]:
    """Return the pods of a job of this kind, including those that are terminating.

    Raise ApiError, urllib3.exceptions.HTTPError or OSError if the API server refuses the request or does not answer.
    """
    selector = {"labelSelector": f"{POD_LABELS[kind]}={job}"}
    return api.request("GET", PODS.format(namespace), query=selector)["items"]


def _find_unfinished(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    states = _states(status, "initContainerStatuses")
    return [state for state in states if "waiting" in state or state.get("terminated", {}).get("exitCode")]


def _states(status: Mapping[str, Any], containers: str) -> list[Mapping[str, Any]]:
    return [container.get("state", {}) for container in status.get(containers, [])]


def _held_up(states: list[Mapping[str, Any]]) -> str:
    waiting = [state["waiting"] for state in states if "waiting" in state]
    stuck = [wait for wait in waiting if wait.get("reason") not in (None, "ContainerCreating", "PodInitializing")]
    return ": ".join(part for wait in stuck[:1] for part in (wait["reason"], wait.get("message", "")) if part)


def _refused(found: Object) -> str:
    """Return kubelet's words about a pod that it refused. It reports no container of such a pod."""
    status = found.get("status", {})
    ran = bool(status.get("containerStatuses") or condition(found, "DisruptionTarget"))
    return "" if status.get("phase") != "Failed" or ran else _ended_for(found)


def _ended_for(found: Object) -> str:
    disruption = condition(found, "DisruptionTarget")
    parts = [disruption.get("reason", ""), disruption.get("message", "")]
    if not any(parts):
        status = found.get("status", {})
        parts = [status.get("reason", ""), status.get("message", "")]
    return ": ".join(part for part in parts if part)
