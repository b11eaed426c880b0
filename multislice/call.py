"""A call that was submitted: its state, its output, its result, its end.

Owns what a JobSet and the bucket say of a call. How it came there is up to `multislice.submission`.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from cli.logs.pod_log import Source
from cli.logs.reading import WHOLE
from cli.observed.paths import JOBSETS, WORKLOADS
from cli.observed.pod import LEADER, host_of, pods_of
from infra.api_server import UNREACHABLE, ApiError, Json
from infra.calls import KEPT_SECONDS
from multislice.errors import CallGone, HostFailed
from multislice.failures import host_failure
from multislice.outcome import Outcome, found_outcome
from multislice.place import Place
from workloads.call.folder import OUTPUT, Seals
from workloads.progress import FunctionBegins, FunctionEnded
from workloads.spec import CallSpec

_POLL_SECONDS = 0.5
_FIRST_LOOK_SECONDS, _LAST_LOOK_SECONDS = 0.1, 5.0
"""Into the bucket, where every look costs a request, while other hosts are still at work."""
NOISE = "[Gloo]"
"""Of a line that Gloo prints for every group of processes it connects."""


class State(StrEnum):
    """Of a call."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    RETURNED = "returned"
    FAILED = "failed"
    GONE = "gone"
    """Cancelled, or removed a day after its end."""

    @property
    def is_end(self) -> bool:
        """Whether nothing comes after it."""
        return self in (State.RETURNED, State.FAILED, State.GONE)


@dataclass(frozen=True)
class Status:
    """Of a call at one moment."""

    state: State
    reason: str = ""
    """Why it waits or failed, in the cluster's words."""

    def __str__(self) -> str:
        return f"{self.state}: {self.reason}" if self.reason else str(self.state)


def ignore(_: object) -> None:
    """Hears of a state and says nothing."""


@dataclass(frozen=True)
class Call:
    """One call of a function on slices. It runs on whether or not anybody holds this."""

    id: str
    """Name of the call, by which `multislice.attach` finds it again."""
    namespace: str
    """Of its JobSet."""
    place: Place = field(repr=False)
    """The stack that has it."""
    spec: CallSpec = field(repr=False)
    """What its hosts were told."""

    @property
    def output(self) -> str:
        """Folder for what the function writes, which it finds in `os.environ["MULTISLICE_OUTPUT"]`."""
        return f"{self.spec.folder}/{OUTPUT}"

    def status(self) -> Status:
        """Where the call is now."""
        jobset = self.place.api.find(self._path)
        return Status(State.GONE) if jobset is None else _status(jobset, lambda: self._waits_for(jobset))

    def result(self, timeout: float | None = None) -> Any:
        """What the function returned on the first host of the first slice; waits for it, at most `timeout` seconds.

        It can be had once.

        Raises:
            TimeoutError: it has not ended by then. It runs on.
            CallError: there is no result to come; see `multislice.errors`.
            BaseException: what the function raised.
        """
        return self.outcome(timeout).result()

    def outcome(
        self,
        timeout: float | None = None,
        told: Callable[[Status], None] = ignore,
        ended: threading.Event | None = None,
    ) -> Outcome:
        """What became of the call: its value or its error; waits as `result` does.

        `told` hears of every change of state. `ended` says that the function has ended on the first host, so that the
        result may be there before the hosts are gone.

        Raises:
            TimeoutError: it has not ended by then. It runs on.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        ended = ended or threading.Event()
        seals, before, pause = Seals.of(self.spec, self.place.folder(self.id)), None, _FIRST_LOOK_SECONDS
        while True:
            if ended.is_set() and (found := self._found(seals)):
                return found
            status = self._known_status() or before
            if status and status != before:
                told(status)
                before = status
            if status and status.state.is_end:
                return self._found(seals) or self._without_word(status)
            if time.monotonic() > deadline:
                raise TimeoutError(f"call {self.id} has not ended within {timeout:g} s ({status}); it runs on")
            if ended.is_set():
                time.sleep(pause)
                pause = min(2 * pause, _LAST_LOOK_SECONDS)
            else:
                ended.wait(_POLL_SECONDS)

    def _found(self, seals: Seals) -> Outcome | None:
        """What the hosts wrote. A value that was fetched needs no second copy: what the function wrote stays alone."""
        found = found_outcome(seals)
        if found and found.error is None:
            self.place.folder(self.id).remove(keep=OUTPUT)
        return found

    def logs(self, host: str = LEADER) -> str:
        """What the function printed so far on a host such as `slice-1-0`, by default the one whose value is the result.

        Raises:
            CallGone: the host has no log, or none any more.
        """
        try:
            there = pods_of(self.place.api, self.namespace, self.id)
            pods = [pod for pod in there if host_of(pod) == host]
            if newest := max(pods, key=lambda pod: pod["metadata"]["creationTimestamp"], default=None):
                lines = Source.of(self.place.api, newest).read(WHOLE)
                return "\n".join(of_function(line.text for line in lines))
        except ApiError as error:
            raise CallGone(f"{host} of call {self.id} has no log yet: {error}") from None
        raise CallGone(f"{host} of call {self.id} has no log: it has not begun, or is gone ({self.status()})")

    def cancel(self) -> None:
        """End the call and remove it, whatever its state; its chips are free then. Its files stay."""
        self.place.api.delete(self._path, {"propagationPolicy": "Background"})

    def forget(self) -> None:
        """Cancel the call and remove all its files, what the function wrote too."""
        self.cancel()
        self.place.folder(self.id).remove()

    @property
    def _path(self) -> str:
        return f"{JOBSETS.format(self.namespace)}/{self.id}"

    def _known_status(self) -> Status | None:
        """The state; None while the cluster does not say."""
        try:
            return self.status()
        except UNREACHABLE:
            return None

    def _waits_for(self, jobset: Json) -> Status:
        """The state of a call that Kueue holds back, and why."""
        found = self.place.api.request("GET", WORKLOADS.format(self.namespace))["items"]
        uid = jobset["metadata"]["uid"]
        for workload in found:
            if any(owner["uid"] == uid for owner in workload["metadata"].get("ownerReferences", [])):
                return _queued(workload)
        return Status(State.QUEUED)

    def _without_word(self, status: Status) -> Outcome:
        if status.state is State.GONE:
            hours = KEPT_SECONDS // 3600
            return Outcome(None, error=CallGone(f"call {self.id} was cancelled, or ended more than {hours} hours ago"))
        if status.state is State.RETURNED:
            return Outcome(
                None, error=CallGone(f"the result of call {self.id} was fetched before; it is kept no longer")
            )
        told = host_failure(self.place.folder(self.id)) or status.reason or "no host says why"
        return Outcome(None, error=HostFailed(f"call {self.id}: {told}"))


def of_input(outcome: Outcome, value: Any) -> Outcome:
    """The outcome as that of one input of many."""
    if outcome.error is not None:
        outcome.error.add_note(f"input {value!r}"[:200])
    return replace(outcome, input=value)


def of_function(lines: Iterator[str]) -> Iterator[str]:
    """The lines that the function printed, of all that its host did."""
    begun = False
    for line in lines:
        if FunctionBegins.parse(line):
            begun = True
        elif FunctionEnded.parse(line):
            return
        elif begun and not line.startswith(NOISE):
            yield line


def _status(jobset: Json, waits_for: Callable[[], Status]) -> Status:
    status = jobset.get("status", {})
    for condition in status.get("conditions", []):
        if condition["status"] == "True" and condition["type"] in ("Completed", "Failed"):
            state = State.RETURNED if condition["type"] == "Completed" else State.FAILED
            return Status(state, "" if state is State.RETURNED else condition.get("message", ""))
    if jobset["spec"].get("suspend"):
        return waits_for()
    (slices,) = jobset["spec"]["replicatedJobs"]
    ready = sum(entry.get("ready", 0) for entry in status.get("replicatedJobsStatus", []))
    return Status(State.RUNNING if ready == slices["replicas"] else State.STARTING)


def _queued(workload: Json) -> Status:
    conditions = {entry["type"]: entry for entry in workload.get("status", {}).get("conditions", [])}
    evicted = conditions.get("Evicted", {})
    if not workload["spec"].get("active", True):
        return Status(State.FAILED, f"Kueue stopped it for good: {evicted.get('message', 'it was deactivated')}")
    reserved = conditions.get("QuotaReserved", {})
    return Status(State.QUEUED, reserved.get("message", "") if reserved.get("status") == "False" else "")
