"""A job as its cluster has it: the JobSet, Kueue's Workload for it and its pods.

Owns where these lie and which state they make. What is done to them is each command's affair.
"""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from cli.deployed import Deployed, JobPlace
from cli.halt import Halt
from cli.observed.objects import is_true
from cli.observed.place import place_of
from cli.observed.pod import pods_of
from infra.kubernetes import UNREACHABLE, ApiError, ApiServer, Json
from infra.names import JOBSETS, WORKLOADS
from infra.settings.jobs import MOST_GRACE_SECONDS

REFUSED = 2
"""Exit status when the job's state does not allow what was asked."""

_POLL_SECONDS = 0.5
_SLACK_SECONDS = 60.0
"""For the controllers, beyond the hosts' own time to save."""


class State(StrEnum):
    """Of a job."""

    QUEUED = "queued"
    SUSPENDED = "suspended"
    """Kueue does not admit it until it is resumed."""
    RUNNING = "running"
    """Admitted: it holds its chips."""
    ENDING = "ending"
    """Its deletion was asked for."""
    COMPLETED = "completed"
    FAILED = "failed"


ENDED = (State.COMPLETED, State.FAILED)


@dataclass(frozen=True)
class Job:
    """A job at the moment when it was read."""

    api: ApiServer
    place: JobPlace
    jobset: Json
    workload: Json | None
    """None: Kueue has none for it, or not yet."""

    @classmethod
    def find(cls, api: ApiServer, place: JobPlace) -> Self | None:
        """The job of that name; None: its JobSet is not there."""
        jobset = api.find(f"{JOBSETS.format(place.namespace)}/{place.name}")
        if jobset is None:
            return None
        listed: list[Json] = api.request("GET", WORKLOADS.format(place.namespace))["items"]
        uid = jobset["metadata"]["uid"]
        owned = [each for each in listed if uid in (owner["uid"] for owner in _owners(each))]
        return cls(api, place, jobset, owned[-1] if owned else None)

    @property
    def path(self) -> str:
        """Of its JobSet in the API."""
        return f"{JOBSETS.format(self.place.namespace)}/{self.place.name}"

    @property
    def uid(self) -> str:
        """Of its JobSet: another one of the same name has another."""
        return self.jobset["metadata"]["uid"]

    @property
    def workload_path(self) -> str:
        """Of its Workload, which it has."""
        assert self.workload is not None
        return f"{WORKLOADS.format(self.place.namespace)}/{self.workload['metadata']['name']}"

    @property
    def state(self) -> State:
        """What JobSet and Workload say together."""
        if "deletionTimestamp" in self.jobset["metadata"]:
            return State.ENDING
        if terminal := self.jobset.get("status", {}).get("terminalState"):
            return State(terminal.lower())
        if self.workload and not self.workload["spec"].get("active", True):
            return State.SUSPENDED
        return State.RUNNING if self.workload and is_true(self.workload, "Admitted") else State.QUEUED

    @property
    def grace_seconds(self) -> int:
        """How long its hosts may take to save after SIGTERM."""
        templates = [each["template"]["spec"]["template"] for each in self.jobset["spec"]["replicatedJobs"]]
        return max(template["spec"].get("terminationGracePeriodSeconds", 30) for template in templates)

    @property
    def patience_seconds(self) -> float:
        """How long its end may take; admission refuses jobs that would take longer."""
        return min(self.grace_seconds, MOST_GRACE_SECONDS) + _SLACK_SECONDS

    def pods(self) -> list[Json]:
        """Those that are there, ending ones too."""
        return pods_of(self.api, self.place.namespace, self.place.name)

    def now(self) -> Self | None:
        """The same job as it is now; None: it is gone, or another one has its name."""
        found = self.find(self.api, self.place)
        return found if found and found.uid == self.uid else None


def find(stack: Deployed, name: str | None) -> Job:
    """The job of that name, of the stack or submitted by hand to a namespace of its teams; None: the stack's only one.

    Raises:
        Halt: it is not there, or cannot be asked for.
    """
    with asking("tell of a job"):
        place = place_of(stack, name)
        found = Job.find(stack.api, place)
    if found is None:
        raise Halt(
            f"expected job {place.name} in namespace {place.namespace}, got none: it was cancelled, or never submitted;"
            " `pulumi up --refresh` makes it",
            REFUSED,
        )
    return found


def queued(stack: Deployed, name: str | None) -> Job:
    """The job of that name, which Kueue can still admit or hold back.

    Raises:
        Halt: it is not there, has ended, or is of no queue; or the cluster refuses.
    """
    found = find(stack, name)
    place = found.place
    if found.state in ENDED or found.state is State.ENDING:
        raise Halt(
            f"expected a job that waits or runs, but {place.name} is {found.state}; nothing was changed", REFUSED
        )
    if found.workload is None:
        raise Halt(
            f"expected a workload of Kueue for job {place.name}, got none; look at its queue {place.queue} and its"
            f" events: kubectl describe jobset {place.name} -n {place.namespace}"
        )
    return found


@contextmanager
def asking(what: str) -> Generator[None]:
    """Asks the API server for something; its refusal is told in a sentence.

    Raises:
        Halt: the API server refuses, or cannot be reached.
    """
    try:
        yield
    except ApiError as error:
        advice = "; ask who may run `up`: docs/security.md says what members of a team may do" * (error.status == 403)
        raise Halt(f"expected the cluster to {what}, got: {error}{advice}") from None
    except BrokenPipeError:
        # Whoever reads the answer has gone, which is no fault of the cluster.
        raise
    except UNREACHABLE as error:
        raise Halt(
            f"expected the cluster to {what}, but it does not answer: {error}; see `multislice doctor`"
        ) from None


def wait(holds: Callable[[], Any], seconds: float) -> bool:
    """Whether it came to hold in time, over moments in which the API server is away.

    Raises:
        ApiError, urllib3.exceptions.HTTPError, OSError: it is away when the time is over.
    """
    deadline = time.monotonic() + seconds
    while True:
        over = time.monotonic() > deadline
        try:
            if holds():
                return True
        except UNREACHABLE:
            if over:
                raise
        if over:
            return False
        time.sleep(_POLL_SECONDS)


def _owners(found: Json) -> list[Json]:
    return found["metadata"].get("ownerReferences") or []
