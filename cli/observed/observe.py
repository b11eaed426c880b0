"""Reads the state of a stack, once or repeatedly, and finds the first cause of a failure."""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from cli.answer import Halt
from cli.deployed import Deployed, JobPlace, choose_job
from cli.observed.cluster import read_cluster
from cli.observed.files import UNREAD, Failure, Files, read_files
from cli.observed.snapshot import Job, Snapshot
from cli.render import exit_words
from infra.job_state import Kind, Pod, State
from infra.names import call_folder, jobs_folder
from workloads.spec import ExitCode, cause_order

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
    code: int
    at: float
    """Latest possible time of the end."""
    evidence: tuple[str, ...]

    def words(self, kind: Kind) -> str:
        """Return which host of a job of this kind ended, and how.

        A host that lost another one is not the cause. The exit of that other host is unknown here.
        """
        if self.code == ExitCode.PEER_LOST and kind is not Kind.CONTAINER:
            return f"host {self.host} lost the connection to another host"
        return f"host {self.host} exited {exit_words(self.code, kind)}"


def first_cause(job: Job, attempt: int) -> HostEnd | None:
    """Return the end that caused the others after `attempt` restarts. None: no evidence of it exists.

    If the host that caused it left no evidence, because it was killed, it is the end of a host that lost it.
    """
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


FILES_SECONDS = 5.0
"""Age at which files are read again. They change at most every 2 seconds, and reading them costs requests."""


@dataclass
class Observer:
    """Reads a stack, and caches the files that it has just read."""

    deployed: Deployed
    _files: dict[JobPlace, tuple[float, object, Files]] = field(
        default_factory=dict[JobPlace, tuple[float, object, Files]]
    )
    """Files of jobs, with the time at which they were read and the state of the job at that time."""

    def look(self, *names: str) -> Snapshot:
        """Read the stack now, with the files of the jobs `names`, or of all jobs if there are no names."""
        at = time.time()
        seen = read_cluster(self.deployed, at)
        jobs = tuple(self._with_files(job, at) if not names or job.place.name in names else job for job in seen.jobs)
        return replace(seen, jobs=jobs, notes=(*seen.notes, *(note for job in jobs for note in job.files.notes)))

    def job(self, name: str | None) -> tuple[Snapshot, Job]:
        """Read the stack now and return the job `NAME` or `NAMESPACE/NAME`, or the stack's only job if it is None.

        Raise Halt if the cluster does not answer, the job does not exist, or a name is needed.
        """
        wanted = self.deployed.job(None).full_name if name is None else name
        seen = require_answer(self.look(wanted.rpartition("/")[2]))
        place = choose_job(seen.stack, [job.place for job in seen.jobs], wanted)
        return seen, next(job for job in seen.jobs if job.place == place)

    def again(self, seen: Snapshot, job: Job) -> tuple[Snapshot, Job]:
        """Read the same job again. If the cluster does not answer, return what was read last."""
        now = self.look(job.place.name)
        if not now.answered:
            now = replace(seen, at=now.at, answered=False, notes=now.notes)
        return now, next((each for each in now.jobs if each.place == job.place), replace(job, uid=""))

    def _with_files(self, job: Job, at: float) -> Job:
        now = job.uid, job.restarts, job.state
        read_at, before, files = self._files.get(job.place, (0.0, None, UNREAD))
        if now != before or at - read_at >= FILES_SECONDS or lacks_its_end(replace(job, files=files)):
            folder = folder_of(self.deployed, job)
            files = read_files(folder, job.run) if folder else UNREAD
            self._files[job.place] = (at, now, files)
        return replace(job, files=files)


def lacks_its_end(job: Job) -> bool:
    """Return whether the job has completed, but its records do not say so yet, so that more of them may follow."""
    return job.state is State.COMPLETED and bool(job.files.newest.run_id) and not job.training.ended


def require_answer(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot. Raise Halt if the cluster does not answer."""
    if snapshot.answered:
        return snapshot
    raise Halt(
        "expected the cluster to answer, got:\n" + "\n".join(f"  {note}" for note in snapshot.notes) + "\n"
        f"To find the cause, run: multislice doctor {snapshot.options}"
    )


def folder_of(deployed: Deployed, job: Job) -> str | None:
    """Return the folder of the job's files.

    None: the files are unknown, because the job runs another program, or because it was submitted by hand with the
    name of one of the stack's jobs.
    """
    if job.kind is Kind.TRAINING and job.folder.startswith(f"{jobs_folder(job.place.namespace)}/"):
        return f"{deployed.storage}/{job.folder}"
    own = {place.name: place.namespace for place in deployed.jobs}
    if own.get(job.place.name, job.place.namespace) != job.place.namespace:
        return None
    match job.kind:
        case Kind.TRAINING:
            return deployed.job_folder(job.place)
        case Kind.FUNCTION:
            return f"{deployed.storage}/{call_folder(job.place.namespace, job.place.name)}"
        case Kind.CONTAINER:
            return None
