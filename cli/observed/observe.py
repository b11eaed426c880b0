"""Looks at a stack, once or again and again."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cli.deployed import Deployed, JobPlace
from cli.observed.cluster import Cluster, read_cluster
from cli.observed.files import UNREAD, Files, read_files
from cli.observed.kind import Kind
from cli.observed.place import meant
from cli.observed.slices import without_hosts
from cli.observed.snapshot import Job, Snapshot

FILES_SECONDS = 5.0
"""Files are replaced every 2 seconds at most, and reading them costs requests: they are read again after so long."""


@dataclass
class Observer:
    """Looks at a stack as often as it is asked to; of files it remembers what it read a moment ago."""

    deployed: Deployed
    _files: dict[JobPlace, tuple[float, Files]] = field(default_factory=dict[JobPlace, tuple[float, Files]])

    def look(self, *names: str) -> Snapshot:
        """The stack now, with the files of the jobs of these names; without a name: of all that are there."""
        at = time.time()
        cluster = read_cluster(self.deployed, at)
        jobs = tuple(self._with_files(job, at) if not names or job.place.name in names else job for job in cluster.jobs)
        return _snapshot(self.deployed, replace(cluster, jobs=jobs), at)

    def _with_files(self, job: Job, at: float) -> Job:
        read_at, files = self._files.get(job.place, (0.0, UNREAD))
        if at - read_at >= FILES_SECONDS:
            folder = folder_of(self.deployed, job)
            files = read_files(folder) if folder else UNREAD
            self._files[job.place] = (at, files)
        return replace(job, files=files)


def folder_of(deployed: Deployed, job: Job) -> str | None:
    """Return the folder of the job's files.

    None: another program keeps its files as it likes. So does somebody else's job that has the name of the stack's.
    """
    own = {place.name: place.namespace for place in deployed.jobs}
    if own.get(job.place.name, job.place.namespace) != job.place.namespace:
        return None
    match job.kind:
        case Kind.TRAINING:
            return deployed.job_folder(job.place)
        case Kind.FUNCTION:
            return deployed.call_folder(job.place)
        case Kind.CONTAINER:
            return None


def job_of(deployed: Deployed, snapshot: Snapshot, name: str | None) -> Job:
    """The job that `NAME` or `NAMESPACE/NAME` means; None: the stack's only one.

    Raises:
        Halt: there is none, several namespaces have one of that name, or it takes a name to know.
    """
    places = tuple(job.place for job in snapshot.jobs)
    wanted = deployed.job(None).full_name if name is None else name
    place = meant(wanted, places) or replace(deployed, jobs=places).job(wanted)
    return next(job for job in snapshot.jobs if job.place == place)


def named(deployed: Deployed, name: str | None) -> tuple[str, ...]:
    """The jobs to look at when somebody asks for `NAME` or `NAMESPACE/NAME`; None: the stack's only one.

    Raises:
        Halt: it takes a name to know which.
    """
    return (deployed.job(None).name,) if name is None else (name.rpartition("/")[2],)


def _snapshot(deployed: Deployed, cluster: Cluster, at: float) -> Snapshot:
    bill: Mapping[str, Any] = deployed.outputs.get("bill", {}).get("at_once", {})
    usd_per_hour = None if bill.get("unknown") else bill.get("usd_per_hour")
    hostless = without_hosts(deployed.outputs, {node.pool for node in cluster.nodes}) if cluster.nodes_told else None
    return Snapshot(
        stack=deployed.stack,
        options=deployed.options,
        cluster=deployed.outputs.get("cluster", ""),
        at=at,
        in_sandbox=deployed.sandbox is not None,
        answered=cluster.answered,
        usd_per_hour=usd_per_hour,
        nodes=cluster.nodes,
        hostless=hostless or {},
        queues=cluster.queues,
        workloads=cluster.workloads,
        jobs=cluster.jobs,
        notes=(*cluster.notes, *(note for job in cluster.jobs for note in job.files.notes)),
    )
