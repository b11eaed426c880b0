"""A call that was submitted: its state, its output, its result, its end.

Owns what a JobSet and the bucket say of a call. How it came there is up to `multislice.submission`.
"""

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from cli.logs.pod_log import Source
from cli.logs.reading import WHOLE
from cli.observed.pod import LEADER, host_of, newest, pods_of
from infra.jobs import KEPT_SECONDS
from infra.kubernetes import UNREACHABLE, Json
from infra.names import JOBSETS, WORKLOADS
from multislice.errors import BucketFailed, CallGone, HostFailed, NoSuchStack
from multislice.failures import host_failure
from multislice.function_log import of_function
from multislice.outcome import Outcome, found_outcome
from multislice.place import Place
from multislice.reaching import bucket, cluster
from multislice.status import State, Status, queued, starting, status_of
from workloads.call.folder import OUTPUT, CallFolder, Seals
from workloads.spec import CallSpec

_POLL_SECONDS = 0.5
_FIRST_LOOK_SECONDS, _LAST_LOOK_SECONDS = 0.1, 5.0
"""Into the bucket, where every look costs a request, while other hosts are still at work."""


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
    def again(self) -> str:
        """The expression by which any process finds it again."""
        return self.place.again(self.id, self.namespace)

    @property
    def files(self) -> CallFolder:
        """Its folder in the bucket."""
        return self.place.folder(self.namespace, self.id)

    @property
    def output(self) -> str:
        """Folder for what the function writes, which it finds in `os.environ["MULTISLICE_OUTPUT"]`."""
        return f"{self.spec.folder}/{OUTPUT}"

    def status(self) -> Status:
        """Where the call is now.

        Raises:
            NoSuchStack: the cluster cannot be asked.
        """
        with cluster(self.place.stack):
            jobset = self.place.api.find(self._path)
            if jobset is None:
                return Status(State.GONE)
            return status_of(jobset, lambda: self._waits_for(jobset), self._starts)

    def result(self, timeout: float | None = None) -> Any:
        """What the function returned on the first host of the first slice; waits for it, at most `timeout` seconds.

        It can be had once: it and what was sent to the hosts is removed, what the function wrote stays.

        Raises:
            TimeoutError: it has not ended by then. It runs on.
            CallError: there is no result to come; see `multislice.errors`.
            BaseException: what the function raised.
        """
        return self.taken(self.outcome(timeout)).result()

    def outcome(
        self,
        timeout: float | None = None,
        told: Callable[[Status], None] = ignore,
        ended: threading.Event | None = None,
    ) -> Outcome:
        """What became of the call: its value or its error, removing nothing; waits as `result` does.

        `told` hears of every change of state. `ended` says that the function has ended on the first host, so that the
        result may be there before the hosts are gone.

        Raises:
            TimeoutError: it has not ended by then. It runs on.
            BucketFailed: it has ended, and what it left cannot be read from here.
        """
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        ended = ended or threading.Event()
        seals, pause = Seals.of(self.spec, self.files), _FIRST_LOOK_SECONDS
        before: Status | None = None
        while True:
            if ended.is_set() and (found := self._found_early(seals)):
                return found
            status = self._status_or_unknown()
            if _is_news(status, before):
                told(status)
                before = status
            if status.state.is_end:
                return self._found(seals) or self._without_word(status)
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"call {self.id} has not ended within {timeout:g} s ({status}); it runs on")
            if ended.is_set():
                time.sleep(min(pause, left))
                pause = min(2 * pause, _LAST_LOOK_SECONDS)
            else:
                ended.wait(min(_POLL_SECONDS, left))

    def taken(self, found: Outcome) -> Outcome:
        """The outcome, whose value needs no second copy in the bucket: what the function wrote stays there alone."""
        if found.error is None:
            # Whoever has the value shall not lose it because a copy of it stays.
            with suppress(BucketFailed), bucket(self.place.settings.bucket):
                self.files.remove(keep=OUTPUT)
        return found

    def logs(self, host: str = LEADER) -> str:
        """What the function printed so far on a host such as `slice-1-0`, by default the one whose value is the result.

        Raises:
            CallGone: the host has no log, or none any more.
        """
        try:
            there = pods_of(self.place.api, self.namespace, self.id)
            pods = [pod for pod in there if host_of(pod) == host]
            if last := max(pods, key=lambda pod: pod["metadata"]["creationTimestamp"], default=None):
                lines = Source.of(self.place.api, last).read(WHOLE)
                return "\n".join(of_function(self.id, (line.text for line in lines)))
        except UNREACHABLE as error:
            raise CallGone(f"{host} of call {self.id} has no log yet: {error}") from None
        raise CallGone(f"{host} of call {self.id} has no log: it has not begun, or is gone ({self.status()})")

    def cancel(self) -> None:
        """End the call and remove it, whatever its state; its chips are free then. Its files stay.

        Raises:
            NoSuchStack: the cluster cannot be asked.
        """
        with cluster(self.place.stack):
            self.place.api.delete(self._path, {"propagationPolicy": "Background"})

    def forget(self) -> None:
        """Cancel the call and remove all its files, what the function wrote too.

        Raises:
            NoSuchStack: the cluster cannot be asked.
            BucketFailed: the bucket cannot be written.
        """
        self.cancel()
        with bucket(self.place.settings.bucket):
            self.files.remove()

    @property
    def _path(self) -> str:
        return f"{JOBSETS.format(self.namespace)}/{self.id}"

    def _status_or_unknown(self) -> Status:
        try:
            return self.status()
        except NoSuchStack as fault:
            return Status(State.UNKNOWN, str(fault))

    def _found(self, seals: Seals) -> Outcome | None:
        """What the hosts wrote."""
        try:
            with bucket(self.place.settings.bucket):
                return found_outcome(seals)
        except BucketFailed as fault:
            fault.add_note(f"call {self.id} has ended; later, {self.again}.result() may give its result")
            raise

    def _found_early(self, seals: Seals) -> Outcome | None:
        """The same, of which there will be another look."""
        with suppress(BucketFailed):
            return self._found(seals)
        return None

    def _waits_for(self, jobset: Json) -> Status:
        """The state of a call that Kueue holds back, and why."""
        found = self.place.api.request("GET", WORKLOADS.format(self.namespace))["items"]
        uid = jobset["metadata"]["uid"]
        for workload in found:
            if any(owner["uid"] == uid for owner in workload["metadata"].get("ownerReferences", [])):
                return queued(workload)
        return Status(State.QUEUED)

    def _starts(self) -> Status:
        """The state of a call that is admitted and does not run on all hosts, and what holds one up."""
        return starting(newest(pods_of(self.place.api, self.namespace, self.id), time.time()))

    def _without_word(self, status: Status) -> Outcome:
        if status.state is State.GONE:
            hours = KEPT_SECONDS // 3600
            return Outcome(None, error=CallGone(f"call {self.id} was cancelled, or ended more than {hours} hours ago"))
        if status.state is State.RETURNED:
            return Outcome(
                None, error=CallGone(f"the result of call {self.id} was fetched before; it is kept no longer")
            )
        with bucket(self.place.settings.bucket):
            told = host_failure(self.files) or status.reason or "no host says why"
        return Outcome(None, error=HostFailed(f"call {self.id}: {told}"))


def _is_news(status: Status, before: Status | None) -> bool:
    """Whether there is something to tell. Why a cluster cannot be asked is put into other words every time."""
    return status != before and {status.state, before and before.state} != {State.UNKNOWN}
