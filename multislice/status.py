"""Where a call is: read from its JobSet, and from Kueue's Workload while it waits."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from cli.observed.pod import Pod
from infra.kubernetes import Json


class State(StrEnum):
    """Of a call."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    RETURNED = "returned"
    FAILED = "failed"
    GONE = "gone"
    """Cancelled, or removed a day after its end."""
    UNKNOWN = "unknown"
    """The cluster does not say at the moment; whoever waits goes on to wait."""

    @property
    def is_end(self) -> bool:
        """Whether nothing comes after it."""
        return self in (State.RETURNED, State.FAILED, State.GONE)


@dataclass(frozen=True)
class Status:
    """Of a call at one moment."""

    state: State
    reason: str = ""
    """Why it waits, does not start or failed, in the cluster's words."""

    def __str__(self) -> str:
        return f"{self.state}: {self.reason}" if self.reason else str(self.state)


def status_of(jobset: Json, waits_for: Callable[[], Status], starts: Callable[[], Status]) -> Status:
    """The status of the call that the JobSet is for.

    `waits_for` is asked while Kueue holds it back, `starts` while some of its hosts do not run.
    """
    status = jobset.get("status", {})
    for condition in status.get("conditions", []):
        if condition["status"] == "True" and condition["type"] in ("Completed", "Failed"):
            state = State.RETURNED if condition["type"] == "Completed" else State.FAILED
            return Status(state, "" if state is State.RETURNED else condition.get("message", ""))
    if jobset["spec"].get("suspend"):
        return waits_for()
    (slices,) = jobset["spec"]["replicatedJobs"]
    ready = sum(entry.get("ready", 0) for entry in status.get("replicatedJobsStatus", []))
    return Status(State.RUNNING) if ready == slices["replicas"] else starts()


def queued(workload: Json) -> Status:
    """The status of a call that Kueue holds back."""
    conditions = {entry["type"]: entry for entry in workload.get("status", {}).get("conditions", [])}
    evicted = conditions.get("Evicted", {})
    if not workload["spec"].get("active", True):
        return Status(State.FAILED, f"Kueue stopped it for good: {evicted.get('message', 'it was deactivated')}")
    reserved = conditions.get("QuotaReserved", {})
    return Status(State.QUEUED, reserved.get("message", "") if reserved.get("status") == "False" else "")


def starting(pods: Iterable[Pod]) -> Status:
    """The status of an admitted call some of whose hosts do not run, with what holds up the first of them."""
    held = next((f"{pod.host}: {pod.held_up}" for pod in pods if pod.held_up), "")
    return Status(State.STARTING, held)
