"""Finds the host whose end caused the others' in one start of a job: from records, pods and events.

Every view that names a culprit asks here, so that all of them name the same one.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cli.observed.files import Failure
from cli.observed.pod import Pod
from cli.observed.snapshot import Event
from workloads.spec import cause_order

_POD_FAILED = re.compile(r"for pod \S+/(?P<pod>\S+) failed with exit code (?P<code>\d+)")
"""The Job controller, of the pod by which it fails a Job (kubernetes/pkg/controller/job/pod_failure_policy.go)."""
_WHOLE_SECOND = 1.0
"""Kubernetes cuts its times to whole seconds, while records have fractions: the end was up to a second later."""
_EVENTS_BEFORE_SECONDS, _EVENTS_AFTER_SECONDS = 120.0, 10.0
"""An event is of a start that ended so long after or before it. JAX notices a lost host within 100 seconds."""


@dataclass(frozen=True)
class HostEnd:
    """How a host ended."""

    host: str
    """Its name within the JobSet."""
    code: int
    at: float
    """The latest moment at which it can have been."""
    evidence: tuple[str, ...]
    """Who says so, in their words."""


@dataclass(frozen=True)
class Traces:
    """What is left of the starts of a job."""

    job: str
    submitted: float
    pods: Sequence[Pod] = ()
    records: Sequence[Failure] = ()
    events: Sequence[Event] = ()

    def first_cause(self, attempt: int) -> HostEnd | None:
        """The end that caused the others after `attempt` restarts; None: nothing is left of it."""
        records = self._records(attempt)
        ends = [HostEnd(self._host(fail.host), fail.code, fail.at, (f"{fail.host}: {fail.cause}",)) for fail in records]
        ends += [_of_pod(pod) for pod in self._pods(attempt) if pod.phase == "Failed" and pod.exit_code]
        after = [pod.created for pod in self._pods(attempt + 1)]
        if moments := [*(end.at for end in ends), *after]:
            ends += self._events(min(moments), self._earlier(attempt))
        return min(ends, key=lambda end: (*cause_order(end.code, end.at), end.host), default=None)

    def _pods(self, attempt: int) -> list[Pod]:
        return [pod for pod in self.pods if pod.attempt == attempt]

    def _records(self, attempt: int) -> list[Failure]:
        """What hosts left of the last start of that attempt."""
        # What was told before its pods were made is of a start that ended in the queue, where it was put back.
        since = max(self.submitted, min((pod.created for pod in self._pods(attempt)), default=self.submitted))
        told = [fail for fail in self.records if fail.attempt == attempt and fail.at >= since]
        last = max((fail.start for fail in told), default=0)
        return [fail for fail in told if fail.start == last]

    def _earlier(self, attempt: int) -> float:
        """The last that is known of the starts before that attempt."""
        return max((fail.at for fail in self.records if fail.attempt < attempt), default=self.submitted)

    def _events(self, ended: float, earlier: float) -> Iterator[HostEnd]:
        """What the Job controller said of pods around the end of a start; a restart removes the pods themselves."""
        since = max(earlier, ended - _EVENTS_BEFORE_SECONDS)
        for event in self.events:
            found = _POD_FAILED.search(event.message)
            if found and since < event.at <= ended + _EVENTS_AFTER_SECONDS:
                host = self._host(found["pod"].rpartition("-")[0])
                yield HostEnd(host, int(found["code"]), event.at + _WHOLE_SECOND, (event.message,))

    def _host(self, name: str) -> str:
        """`slice-S-H`, of a pod's name without its random end, or of a host name."""
        return name.partition(".")[0].removeprefix(f"{self.job}-")


def _of_pod(pod: Pod) -> HostEnd:
    evidence = (f"{pod.name} on {pod.node}", *((pod.ended_for,) if pod.ended_for else ()))
    return HostEnd(pod.host, pod.exit_code or 0, (pod.ended or pod.created) + _WHOLE_SECOND, evidence)
