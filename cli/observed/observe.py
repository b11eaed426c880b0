"""Reads the state of a stack, once or repeatedly."""

import time
from dataclasses import dataclass, field, replace

from cli.answer import Halt
from cli.deployed import Deployed, JobRef, choose_job
from cli.observed.causes import keep
from cli.observed.cluster import read_cluster
from cli.observed.files import UNREAD, Files, read_files
from cli.observed.foreign import read_foreign
from cli.observed.snapshot import JobStatus, Snapshot
from infra.cluster.job_state import Kind, State
from infra.stack.names import call_folder, jobs_folder

FILES_SECONDS = 5.0
"""Age at which files are read again. They change at most every 2 seconds, and reading them costs requests."""


@dataclass
class Observer:
    """Reads a stack, and caches the files that it has just read."""

    deployed: Deployed
    _files: dict[JobRef, tuple[float, object, Files]] = field(default_factory=dict[JobRef, tuple[float, object, Files]])
    """Files of jobs, with the time at which they were read and the state of the job at that time."""

    def look(self, *names: str) -> Snapshot:
        """Read the stack now, with the files of the jobs `names`, or of all jobs if there are no names."""
        at = time.time()
        seen = (read_foreign if self.deployed.foreign else read_cluster)(self.deployed, at)
        jobs = tuple(self._with_files(job, at) if not names or job.ref.name in names else job for job in seen.jobs)
        return replace(seen, jobs=jobs, notes=(*seen.notes, *(note for job in jobs for note in job.files.notes)))

    def job(self, name: str | None) -> tuple[Snapshot, JobStatus]:
        """Read the stack now and return the job `NAME` or `NAMESPACE/NAME`, or the stack's only job if it is None.

        Raise Halt if the cluster does not answer, the job does not exist, or a name is needed.
        """
        wanted = self.deployed.job(None).full_name if name is None else name
        seen = require_answer(self.look(wanted.rpartition("/")[2]))
        ref = choose_job(seen.place, [job.ref for job in seen.jobs], wanted)
        return seen, next(job for job in seen.jobs if job.ref == ref)

    def again(self, seen: Snapshot, job: JobStatus) -> tuple[Snapshot, JobStatus]:
        """Read the same job again. If the cluster does not answer, return what was read last."""
        now = self.look(job.ref.name)
        if not now.answered:
            now = replace(seen, at=now.at, answered=False, notes=now.notes)
        # In a foreign cluster, only the admission of a job may tell its ClusterQueue.
        own = (each for each in now.jobs if replace(each.ref, queue=job.ref.queue) == job.ref)
        return now, next(own, replace(job, uid=""))

    def _with_files(self, job: JobStatus, at: float) -> JobStatus:
        now = job.uid, job.restarts, job.state
        read_at, before, files = self._files.get(job.ref, (0.0, None, UNREAD))
        if now != before or at - read_at >= FILES_SECONDS or lacks_its_end(job.with_files(files)):
            folder = folder_of(self.deployed, job)
            files = read_files(folder, job.run, job.uid) if folder else UNREAD
            self._files[job.ref] = (at, now, files)
        known = job.with_files(files)
        if not self.deployed.foreign:
            keep(self.deployed.api, known)
        return known


def lacks_its_end(job: JobStatus) -> bool:
    """Return whether the job has completed, but its records do not say so yet, so that more of them may follow."""
    return job.state is State.COMPLETED and bool(job.files.newest.run_id) and not job.training.ended


def require_answer(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot. Raise Halt if the cluster does not answer."""
    if snapshot.answered:
        return snapshot
    raise Halt(
        "expected a cluster that answers, and whose jobs you may read, got:\n"
        + "\n".join(f"  {note}" for note in snapshot.notes)
        + "\n"
        f"To find the cause: {snapshot.reader.command('doctor')}"
    )


def folder_of(deployed: Deployed, job: JobStatus) -> str | None:
    """Return the folder of the job's files.

    None: the files are unknown, because the job runs another program, or because it was submitted by hand with the
    name of one of the stack's jobs.
    """
    if deployed.foreign:
        return job.folder or None
    if job.kind is Kind.TRAINING and job.folder.startswith(f"{jobs_folder(job.ref.namespace)}/"):
        return f"{deployed.storage}/{job.folder}"
    own = {ref.name: ref.namespace for ref in deployed.jobs}
    if own.get(job.ref.name, job.ref.namespace) != job.ref.namespace:
        return None
    match job.kind:
        case Kind.TRAINING:
            return deployed.job_folder(job.ref)
        case Kind.FUNCTION:
            return f"{deployed.storage}/{call_folder(job.ref.namespace, job.ref.name)}"
        case Kind.CONTAINER:
            return None
