"""Finds the host that failed first in an attempt of a job and made the others end, from records, pods and events.

All commands use it, so that they name the same host.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from cli.observed.files import Failure
from cli.observed.snapshot import Job
from infra.job_state import Pod
from workloads.spec import cause_order

_POD_FAILED = re.compile(r"for pod \S+/(?P<pod>\S+) failed with exit code (?P<code>\d+)")
"""The Job controller's message about the pod for which it fails a Job
(kubernetes/pkg/controller/job/pod_failure_policy.go)."""
_WHOLE_SECOND = 1.0
"""Kubernetes truncates times to whole seconds, so the actual time is up to a second later. Records have fractions."""
_EVENTS_BEFORE_SECONDS, _EVENTS_AFTER_SECONDS = 120.0, 10.0
"""Times before and after the end of an attempt in which an event belongs to it.

JAX notices a lost host within 100 seconds."""


@dataclass(frozen=True)
class HostEnd:
    """End of a host."""

    host: str
    """Name of the host within the JobSet."""
    code: int
    at: float
    """Latest possible time of the end."""
    evidence: tuple[str, ...]
    """Messages of the components that report it."""


def first_cause(job: Job, attempt: int) -> HostEnd | None:
    """Return the end that caused the others after `attempt` restarts. None: no evidence of it exists."""
    records = _records(job, attempt)
    ends = [HostEnd(_host(job, fail.host), fail.code, fail.at, (f"{fail.host}: {fail.cause}",)) for fail in records]
    ends += [_of_pod(pod) for pod in _pods(job, attempt) if pod.phase == "Failed" and pod.exit_code]
    after = [pod.created for pod in _pods(job, attempt + 1)]
    if moments := [*(end.at for end in ends), *after]:
        # The last known time of the attempts before.
        earlier = max((fail.at for fail in job.files.failures if fail.attempt < attempt), default=job.created)
        ends += _events(job, min(moments), earlier)
    return min(ends, key=lambda end: (*cause_order(end.code, end.at), end.host), default=None)


def _pods(job: Job, attempt: int) -> list[Pod]:
    return [pod for pod in job.pods if pod.attempt == attempt]


def _records(job: Job, attempt: int) -> list[Failure]:
    """Return the failures that hosts recorded in the last start of the attempt."""
    # Records older than its pods belong to a start that was evicted.
    since = max(job.created, min((pod.created for pod in _pods(job, attempt)), default=job.created))
    found = [fail for fail in job.files.failures if fail.attempt == attempt and fail.at >= since]
    last = max((fail.start for fail in found), default=0)
    return [fail for fail in found if fail.start == last]


def _events(job: Job, ended: float, earlier: float) -> Iterator[HostEnd]:
    """Yield the ends of hosts in the Job controller's events around the end of an attempt.

    They are needed because a restart deletes the pods.
    """
    since = max(earlier, ended - _EVENTS_BEFORE_SECONDS)
    for event in job.events:
        found = _POD_FAILED.search(event.message)
        if found and since < event.at <= ended + _EVENTS_AFTER_SECONDS:
            host = _host(job, found["pod"].rpartition("-")[0])
            yield HostEnd(host, int(found["code"]), event.at + _WHOLE_SECOND, (event.message,))


def _host(job: Job, name: str) -> str:
    """Return `slice-S-H` for a host name, or for a pod name without its random suffix."""
    return name.partition(".")[0].removeprefix(f"{job.place.name}-")


def _of_pod(pod: Pod) -> HostEnd:
    evidence = (f"{pod.name} on {pod.node}", *((pod.ended_for,) if pod.ended_for else ()))
    return HostEnd(pod.host, pod.exit_code or 0, (pod.ended or pod.created) + _WHOLE_SECOND, evidence)
