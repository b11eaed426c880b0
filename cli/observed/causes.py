"""Finds the first cause of the end of each attempt, and keeps what the cluster forgets.

The records of a run say how its attempts ended. The end of a killed host, of a program without records, and of a pod
that a node refused is only in the cluster: in the pods until the restart, and in events for an hour
(https://kubernetes.io/docs/reference/command-line-tools-reference/kube-apiserver/, `--event-ttl`).

A restart deletes the Jobs and pods of all slices and creates new ones, the Jobs under the same names. Two attempts may
end within a second, so it is the uid of an event's object that counts, not its time. If pods stay, only the files of
the job have its attempts (`JobStatus.with_files`).
"""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from cli.observed.files import Begun, Failure
from cli.observed.snapshot import WHOLE_SECOND, Event, JobStatus
from cli.render import exit_words
from infra.cluster.job_pods import Pod, job_restarts, names_of, restarts_before
from infra.cluster.job_state import Kind
from infra.cluster.kubernetes import UNREACHABLE, ApiServer
from infra.stack.manifests import Object, moment
from infra.stack.names import RESTARTS_ANNOTATION, WORKLOADS
from workloads.spec import CONSEQUENCES, ExitCode, cause_order

_MAX_CHARACTERS = 300
"""Most of each message that an annotation keeps, so that hundreds of ends fit into one."""
_MAX_KEPT_RESTARTS = 200
_POD_FAILED = re.compile(r"for pod \S+/(?P<pod>\S+) failed with exit code (?P<code>\d+)")
"""The Job controller's message about the pod for which it fails a Job
(kubernetes/pkg/controller/job/pod_failure_policy.go)."""
_REFUSED = re.compile(r"UnexpectedAdmissionError|OutOf\w.*|Node(Affinity|Ports|Name)|\w+AffinityError|PodOS\w+")
"""Kubelet's reasons to refuse a pod (kubernetes/pkg/kubelet/lifecycle/predicate.go)."""


@dataclass(frozen=True)
class HostEnd:
    """End of a host, or of several of which one ended first."""

    host: str
    """Names of hosts, such as `slice-0-1`. Empty: any of the job's hosts."""
    code: int | None
    """Exit code. None: unknown, or its program never ran."""
    at: float
    """Latest possible time of the end."""
    evidence: tuple[str, ...]
    refused_by: str = ""
    """Node that refused its pod, so that its program never ran."""
    recorded: bool = False
    """Whether the host has a record of it. If it was killed, only its process was, and its pod stayed."""

    @property
    def is_certain(self) -> bool:
        """Whether it names the cause. A host that lost another one is not the cause."""
        return bool(self.refused_by) or self.code not in (None, *CONSEQUENCES)

    def words(self, kind: Kind) -> str:
        """Return which host of a job of this kind ended, and how. The exit of a host that it lost is unknown here."""
        if self.refused_by:
            return f"node {self.refused_by} refused the pod of host {self.host}"
        if self.code is None:
            return f"{f'host {self.host}' if self.host else 'a host'} was killed or lost with its machine"
        if self.code == ExitCode.PEER_LOST and kind is not Kind.CONTAINER:
            return f"host {self.host} lost the connection to another host"
        # All hosts get SIGTERM, and evidence of the first end may come from any of them.
        preempted = self.code == ExitCode.PREEMPTED and kind is not Kind.CONTAINER
        return f"{'all hosts' if preempted else f'host {self.host}'} exited {exit_words(self.code, kind)}"


_ENDS = TypeAdapter(dict[int, HostEnd])


def to_text(ends: Mapping[int, HostEnd]) -> str:
    """Return the newest ends, by attempt, as the text of an annotation."""
    kept = sorted(ends.items())[-_MAX_KEPT_RESTARTS:]
    short = {
        number: replace(end, evidence=tuple(text[:_MAX_CHARACTERS] for text in end.evidence)) for number, end in kept
    }
    return json.dumps(_ENDS.dump_python(short))


def from_text(text: str) -> dict[int, HostEnd]:
    """Return the ends in an annotation by attempt; none if it has another form, because members may write it."""
    try:
        return _ENDS.validate_python(json.loads(text or "{}"))
    except (ValueError, RecursionError):
        return {}


def first_cause(job: JobStatus, attempt: int) -> HostEnd | None:
    """Return the end that caused the others after `attempt` restarts. None: no evidence of it exists.

    If the host that caused it left no evidence, because it was killed, it is the end of a host that lost it.
    """
    found = _seen(job, attempt)
    if found and found.is_certain:
        return found
    return _kept(job).get(attempt, found)


def refusals(job: JobStatus) -> list[Event]:
    """Return the events about pods that nodes refused before their programs ran, newest first."""
    return [event for event in job.events if event.kind == "Pod" and _REFUSED.fullmatch(event.reason)]


def keep(api: ApiServer, job: JobStatus) -> None:
    """Keep the causes of restarts that the job's files do not have, in an annotation of its Workload.

    Members may write it. Nothing is kept if the API server refuses that or does not answer, or for a job without a
    queue.
    """
    kept, lasting = _kept(job), replace(job, pods=(), events=())
    seen = {attempt: _seen(job, attempt) for attempt in range(job.restarts) if attempt not in kept}
    new = {attempt: end for attempt, end in seen.items() if end and end.is_certain and _seen(lasting, attempt) != end}
    # Attempts of pods that stay have other numbers in the cluster than in files.
    if not new or job.workload is None or (job.restarts_of_slices and not job.files.knows_world):
        return
    path = f"{WORKLOADS.format(job.workload.namespace)}/{job.workload.name}"
    with suppress(*UNREACHABLE):
        api.patch(path, {"metadata": {"annotations": {RESTARTS_ANNOTATION: to_text(kept | new)}}})


def _kept(job: JobStatus) -> dict[int, HostEnd]:
    return from_text(job.workload.restarts) if job.workload else {}


def _seen(job: JobStatus, attempt: int) -> HostEnd | None:
    ends = [
        HostEnd(_host(job, fail.host), fail.code, fail.at, (f"{fail.host}: {fail.cause}",), recorded=True)
        for fail in _records(job, attempt)
    ]
    ends += [_of_pod(pod) for pod in _pods(job, attempt) if pod.phase == "Failed" and pod.exit_code]
    ends += (*_of_events(job, attempt), *_refused(job, attempt))
    # In the second in which a pod is refused, the restart may already end the other slices.
    first = min(ends, key=lambda end: (*cause_order(end.code or 0, end.at), not end.refused_by, end.host), default=None)
    return first if first and first.is_certain else _without_record(job, attempt) or first


def _pods(job: JobStatus, attempt: int) -> list[Pod]:
    return [pod for pod in job.pods if pod.attempt == attempt]


def _records(job: JobStatus, attempt: int) -> list[Failure]:
    # Records older than its pods belong to a start that was evicted. Pods that stay are older than their attempts.
    stays, begins = job.files.world is not None, job.files.begins(job.uid)
    begin = begins.get(attempt) if stays else min((pod.created for pod in _pods(job, attempt)), default=None)
    since = max(job.created, begin or job.created)
    found = [fail for fail in job.files.failures if fail.attempt == attempt and fail.at >= since]
    last = max((fail.start for fail in found), default=0)
    return [fail for fail in found if fail.start == last]


def _of_events(job: JobStatus, attempt: int) -> Iterator[HostEnd]:
    """Yield the ends of hosts in the Job controller's events, because a restart deletes the pods."""
    for event in job.events:
        found = _POD_FAILED.search(event.message)
        if found and event.attempt == attempt:
            host = _host(job, found["pod"].rpartition("-")[0])
            yield HostEnd(host, int(found["code"]), event.at + WHOLE_SECOND, (event.message,))


def _refused(job: JobStatus, attempt: int) -> Iterator[HostEnd]:
    for pod in _pods(job, attempt):
        if pod.refused:
            yield HostEnd(pod.host, None, pod.created + WHOLE_SECOND, (f"{pod.name}: {pod.refused}",), pod.node)
    for event in refusals(job):
        if event.attempt == attempt and event.node:
            host, words = _host(job, event.name.rpartition("-")[0]), f"{event.name}: {event.reason}: {event.message}"
            yield HostEnd(host, None, event.at + WHOLE_SECOND, (words,), event.node)


def _without_record(job: JobStatus, attempt: int) -> HostEnd | None:
    """Return the end of hosts that the run's files have without a record of their end, because they were killed."""
    starts = [start for start in job.files.starts if (start.submission, start.attempt) == (job.uid, attempt)]
    if not starts or not starts[-1].killed:
        return None
    last: Begun = starts[-1]
    return HostEnd(" or ".join(_host(job, host) for host in last.lost), None, last.ended, (last.cause,))


def _host(job: JobStatus, name: str) -> str:
    """Return `slice-S-H` for a host name, or for a pod name without its random suffix."""
    return name.partition(".")[0].removeprefix(f"{job.ref.name}-")


def _of_pod(pod: Pod) -> HostEnd:
    evidence = (f"{pod.name} on {pod.node}", *((pod.ended_for,) if pod.ended_for else ()))
    return HostEnd(pod.host, pod.exit_code or 0, (pod.ended or pod.created) + WHOLE_SECOND, evidence)


_MAX_EVENTS = 500
"""Largest number of warnings about one job, the newest ones. The API server keeps events for an hour."""
_CREATED_POD = re.compile(r"Created pod: (\S+)")
"""The Job controller's message about a pod that it created (kubernetes/pkg/controller/controller_utils.go)."""


def warnings_of(
    jobset: Object,
    workload: str,
    events: Mapping[str, Sequence[tuple[int, Object]]],
    jobs: Collection[Object],
    pods: Collection[Object],
    at: float,
) -> tuple[Event, ...]:
    """Return the warnings about a job, newest first.

    Args:
        jobset: the JobSet.
        workload: name of its Workload.
        events: all events of its namespace, as `index_events` returns them.
        jobs: its Jobs that exist.
        pods: its pods that exist.
        at: time of events that have none.
    """
    created = moment(jobset["metadata"], "creationTimestamp", 0.0)
    names = {jobset["metadata"]["name"], workload} | {pod["metadata"]["name"] for pod in pods}
    jobs_of, hosts = names_of(jobset)
    about = dict(each for key in (*(names | jobs_of), *(f"{host}-" for host in hosts)) for each in events.get(key, ()))
    found = [about[place] for place in sorted(about) if _last(about[place], at) >= created]
    status = jobset.get("status", {})
    # Between two attempts no Job exists. After its end a JobSet deletes those that still run.
    last = status.get("restarts", 0) - (0 if "terminalState" in status else 1)
    alone = job_restarts(jobset)
    attempts = _attempts(found, jobs, pods, {name: last + alone.get(name, 0) for name in jobs_of})
    told = [_event(each, at, attempts) for each in found if each.get("type") == "Warning"]
    return tuple(sorted(told, key=lambda event: event.at, reverse=True)[:_MAX_EVENTS])


def index_events(events: Iterable[Object]) -> Mapping[str, Sequence[tuple[int, Object]]]:
    """Return the events with their places in the list, by the name of their object, and by its part up to the last
    dash, because the names of pods end at random."""
    found: defaultdict[str, list[tuple[int, Object]]] = defaultdict(list)
    for place, event in enumerate(events):
        name = event["involvedObject"].get("name", "")
        for key in (name, "".join(name.rpartition("-")[:2])):
            found[key].append((place, event))
    return found


def _event(found: Object, at: float, attempts: Mapping[str, int]) -> Event:
    about, reason = found["involvedObject"], found.get("reason", "")
    return Event(
        at=_last(found, at),
        kind=about.get("kind", ""),
        name=about["name"],
        reason=reason,
        message=found.get("message", ""),
        node=(found.get("source") or {}).get("host", ""),
        attempt=attempts.get(about.get("uid", "")),
    )


def _attempts(
    events: Sequence[Object], jobs: Collection[Object], pods: Collection[Object], gone: Mapping[str, int]
) -> dict[str, int]:
    """Return the number of restarts before each Job and pod was created, by its uid.

    `gone` has, by name, the attempt of the newest Job of a name of which none exists.
    """
    known = {each["metadata"]["uid"]: restarts_before(each) for each in (*jobs, *pods)}
    present = {job["metadata"]["name"]: job["metadata"]["uid"] for job in jobs}
    for name, uids in _jobs_by_age(events).items():
        # Each Job leaves events, because it creates pods. The cluster forgets those of the oldest Jobs first.
        last = known[present[name]] - 1 if name in present else gone.get(name, 0)
        for back, uid in enumerate(reversed([uid for uid in uids if uid != present.get(name)])):
            known.setdefault(uid, last - back)
    created = _jobs_by_pod(events)
    for event in events:
        about = event["involvedObject"]
        if about.get("kind") == "Pod" and (job := created.get(about["name"], "")) in known:
            known.setdefault(about.get("uid", ""), known[job])
    return known


def _jobs_by_age(events: Iterable[Object]) -> Mapping[str, list[str]]:
    first: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for event in events:
        about = event["involvedObject"]
        if about.get("kind") == "Job" and about.get("uid"):
            uids, began = first[about["name"]], moment(event, "firstTimestamp", _last(event, 0.0))
            uids[about["uid"]] = min(began, uids.get(about["uid"], began))
    return {name: sorted(uids, key=lambda uid: uids[uid]) for name, uids in first.items()}


def _jobs_by_pod(events: Iterable[Object]) -> dict[str, str]:
    return {
        found[1]: event["involvedObject"].get("uid", "")
        for event in events
        if (found := _CREATED_POD.search(event.get("message") or ""))
    }


def _last(event: Object, otherwise: float) -> float:
    made = moment(event["metadata"], "creationTimestamp", otherwise)
    return moment(event, "lastTimestamp", moment(event, "eventTime", made))
