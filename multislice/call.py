"""Represents a submitted call, with its state, output and result."""

import math
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from infra.cluster.job_logs import WHOLE, Source
from infra.cluster.job_pods import host_of, newest, pods_of
from infra.cluster.job_state import LEADER, State, Workload, outcome_of, state_of, workload_of
from infra.cluster.kubernetes import UNREACHABLE, Json
from infra.stack.job_objects import KEPT_SECONDS
from infra.stack.names import HEAD, JOBSETS, WORKLOADS
from multislice.connection import StackConnection
from multislice.errors import (
    BucketFailed,
    CallGone,
    HostFailed,
    NoSuchStack,
    Outcome,
    bucket,
    cluster,
    host_failure,
    read_outcome,
)
from workloads.call.folder import OUTPUT, CallFolder, Seals
from workloads.progress import FunctionBegins, FunctionEnded
from workloads.spec import CallSpec

_POLL_SECONDS = 0.5
_FIRST_LOOK_SECONDS, _LAST_LOOK_SECONDS = 0.1, 5.0
"""Time between reads of the bucket, each of which costs a request, while other hosts still run."""
_NOISE = re.compile(r"\[Gloo\]|.* peer ranks\. Expected number of connected peer ranks")
"""Lines that Gloo prints in pieces for every group of processes that it connects. The beginning may be missing."""


@dataclass(frozen=True)
class Status:
    """Status of a call at one moment."""

    state: State
    reason: str = ""
    """Message of the cluster about why the call waits, does not start or failed."""

    def __str__(self) -> str:
        return f"{self.state}: {self.reason}" if self.reason else str(self.state)


@dataclass(frozen=True)
class Call:
    """A call of a function on slices. The call continues without this object."""

    id: str
    """Name of the call, with which `multislice.attach` finds it."""
    namespace: str
    connection: StackConnection = field(repr=False)
    spec: CallSpec = field(repr=False)

    @property
    def again(self) -> str:
        """Expression with which any process finds the call."""
        connection, teams = self.connection, self.connection.settings.namespaces
        team = next((team for team in teams if teams[team] == self.namespace), "")
        whose = f", team={team!r}" if len(teams) > 1 else ""
        where = "" if connection.sandbox is None else f", sandbox={str(connection.sandbox)!r}"
        return f"multislice.attach({self.id!r}, stack={connection.stack!r}{whose}{where})"

    @property
    def files(self) -> CallFolder:
        """Folder of the call in the bucket."""
        return self.connection.folder(self.namespace, self.id)

    @property
    def leader(self) -> str:
        """Name of the host with the result: the first host of the first slice, or the head of Pathways."""
        return f"{HEAD}-0-0" if self.spec.backend == "pathways" else LEADER

    @property
    def output(self) -> str:
        """Folder for files that the function writes, which is `os.environ["MULTISLICE_OUTPUT"]` in the function."""
        return f"{self.spec.folder}/{OUTPUT}"

    def status(self) -> Status:
        """Return the current status of the call.

        Raises:
            NoSuchStack: The cluster cannot be reached.
        """
        with cluster(self.connection.stack):
            jobset = self.connection.api.find(self._path)
            return Status(State.MISSING) if jobset is None else self._status(jobset)

    def result(self, timeout: float | None = None) -> Any:
        """Return the value from the first host of the first slice. Wait at most `timeout` seconds for it.

        The result can be fetched once. Then it is removed, with the data that was sent to the hosts. Files of the
        function stay.

        Raises:
            TimeoutError: The call has not ended in time. It continues.
            CallError: The call has no result. See `multislice.errors`.
            BaseException: The function raised it.
        """
        return self.take(self.outcome(timeout)).result()

    def outcome(
        self,
        timeout: float | None = None,
        on_status: Callable[[Status], None] = lambda status: None,
        ended: threading.Event | None = None,
    ) -> Outcome:
        """Return the value or the error of the call without removing it. Wait as `result` does.

        `on_status` is called with every change of state. `ended` is set when the function has ended on the first host.
        The result may exist from then on, before the hosts have ended.

        Raises:
            TimeoutError: The call has not ended in time. It continues.
            BucketFailed: The call has ended, but its result cannot be read.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        ended = ended or threading.Event()
        seals, pause = Seals.of(self.spec, self.files), _FIRST_LOOK_SECONDS
        before: Status | None = None
        while True:
            if ended.is_set():
                # Errors are ignored, because it is read again later.
                with suppress(BucketFailed):
                    if found := self._found(seals):
                        return found
            try:
                status = self.status()
            except NoSuchStack as error:
                status = Status(State.UNKNOWN, str(error))
            # Messages about an unreachable cluster always differ.
            if status != before and {status.state, before and before.state} != {State.UNKNOWN}:
                on_status(status)
                before = status
            if status.state.is_end:
                return self._found(seals) or self._without_result(status)
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"call {self.id} has not ended within {timeout:g} s ({status}); it continues")
            if ended.is_set():
                time.sleep(min(pause, left))
                pause = min(2 * pause, _LAST_LOOK_SECONDS)
            else:
                ended.wait(min(_POLL_SECONDS, left))

    def take(self, found: Outcome) -> Outcome:
        """Return the outcome, and remove the copy of its value from the bucket. Files of the function stay."""
        if found.error is None:
            # The caller must get the value even if its copy cannot be removed.
            with suppress(BucketFailed), bucket(self.connection.settings.bucket):
                self.files.remove(keep=OUTPUT)
        return found

    def logs(self, host: str | None = None) -> str:
        """Return what the function has printed on a host such as `slice-1-0`. Default: the host with the result.

        Raises:
            CallGone: The host has no log yet, or no longer.
        """
        host = host or self.leader
        try:
            there = pods_of(self.connection.api, self.namespace, self.id)
            pods = [pod for pod in there if host_of(pod) == host]
            if last := max(pods, key=lambda pod: pod["metadata"]["creationTimestamp"], default=None):
                lines = Source.of(self.connection.api, last).read(WHOLE)
                return "\n".join(filter_lines(self.id, (line.text for line in lines)))
        except UNREACHABLE as error:
            raise CallGone(f"{host} of call {self.id} has no log yet: {error}") from None
        raise CallGone(f"{host} of call {self.id} has no log: it has not started, or was deleted ({self.status()})")

    def cancel(self) -> None:
        """End and remove the call in any state, which frees its chips. Its files stay.

        Raises:
            NoSuchStack: The cluster cannot be reached.
        """
        with cluster(self.connection.stack):
            self.connection.api.delete(self._path, {"propagationPolicy": "Background"})

    def forget(self) -> None:
        """Cancel the call and remove all its files, including those of the function.

        Raises:
            NoSuchStack: The cluster cannot be reached.
            BucketFailed: The bucket cannot be written.
        """
        self.cancel()
        with bucket(self.connection.settings.bucket):
            self.files.remove()

    @property
    def _path(self) -> str:
        return f"{JOBSETS.format(self.namespace)}/{self.id}"

    def _found(self, seals: Seals) -> Outcome | None:
        try:
            with bucket(self.connection.settings.bucket):
                return read_outcome(seals)
        except BucketFailed as error:
            error.add_note(f"call {self.id} has ended; try {self.again}.result() later")
            raise

    def _status(self, jobset: Json) -> Status:
        ended, suspended = outcome_of(jobset), bool(jobset["spec"].get("suspend"))
        workload = self._workload(jobset) if suspended and not ended else None
        state = state_of(ended.state if ended else "", workload, suspended=suspended, all_run=_all_run(jobset))
        said = (
            workload.condition("QuotaReserved" if state is not State.DEACTIVATED else "Evicted") if workload else None
        )
        match state:
            case State.FAILED if ended:
                return Status(state, ended.message)
            case State.DEACTIVATED:
                # Nothing activates a call again.
                return Status(State.FAILED, f"Kueue deactivated it: {said.message if said else 'no reason given'}")
            case State.STARTING:
                pods = newest(pods_of(self.connection.api, self.namespace, self.id), time.time())
                return Status(state, next((f"{pod.host}: {pod.held_up}" for pod in pods if pod.held_up), ""))
            case _:
                return Status(state, said.message if said and not said.holds else "")

    def _workload(self, jobset: Json) -> Workload | None:
        uid = jobset["metadata"]["uid"]
        for workload in self.connection.api.request("GET", WORKLOADS.format(self.namespace))["items"]:
            if any(owner["uid"] == uid for owner in workload["metadata"].get("ownerReferences", [])):
                return workload_of(workload)
        return None

    def _without_result(self, status: Status) -> Outcome:
        if status.state is State.MISSING:
            hours = KEPT_SECONDS // 3600
            return Outcome(None, error=CallGone(f"call {self.id} was cancelled, or ended more than {hours} hours ago"))
        if status.state is State.COMPLETED:
            return Outcome(None, error=CallGone(f"the result of call {self.id} was fetched before and then removed"))
        with bucket(self.connection.settings.bucket):
            why = host_failure(self.files) or status.reason or "no host reported a cause"
        return Outcome(None, error=HostFailed(f"call {self.id}: {why}"))


def _all_run(jobset: Json) -> bool:
    found = jobset.get("status", {}).get("replicatedJobsStatus", [])
    up = sum(entry.get("ready", 0) + entry.get("succeeded", 0) for entry in found)
    return up >= sum(job.get("replicas", 1) for job in jobset["spec"]["replicatedJobs"])


class FunctionLog:
    """Finds the part of a host's log that the function of a call printed."""

    def __init__(self, call: str) -> None:
        """Start before the log's first line."""
        self._begins, self._ends = FunctionBegins(call).line(), FunctionEnded(call).line()
        self._open = False
        self.ended = False
        """Whether the function has ended."""

    def line(self, text: str) -> str | None:
        """Take the next line of the log and return what the function printed of it. None: nothing."""
        if text.endswith(self._begins):
            self._open = True
            return None
        if self._open and text.endswith(self._ends):
            self._open, self.ended = False, True
            # The last line of a function may lack a line break, as with progress bars.
            return text.removesuffix(self._ends) or None
        return text if self._open and not _NOISE.match(text) else None


def filter_lines(call: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a host's log that the function printed."""
    log = FunctionLog(call)
    for text in lines:
        if (line := log.line(text)) is not None:
            yield line
