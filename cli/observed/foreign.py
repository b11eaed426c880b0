"""Reads a namespace of a cluster that no stack of this project deployed, with whatever queues its jobs wait in.

Jobs are JobSets, batch Jobs, and every other object that Kueue admits. Nothing is assumed of their names: a LocalQueue
says what its ClusterQueue is, and the owner of a Workload what it admits.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cli.deployed import Deployed, Foreign, JobRef
from cli.observed.cluster import Admitted, Owned, Reader, job_of, node_of, queues_of, stopped
from cli.observed.snapshot import JobStatus, Snapshot
from infra.cluster.job_state import Kind, Workload, as_jobset, chips_of, jobset_of, owners_of, url_of, workload_of
from infra.cluster.kubernetes import Json
from infra.stack.manifests import Object
from infra.stack.names import (
    ACCELERATOR_LABEL,
    EVENTS,
    EXCLUSIVE,
    JOB_NAME_LABEL,
    JOBS,
    JOBSETS,
    LOCAL_QUEUES,
    NODES,
    PODS,
    QUEUE_LABEL,
    QUEUES,
    WORKLOADS,
    everywhere,
)

_BUCKET = "gs://"
NO_RECORDS = "steps, losses and dollars are not known, because no job here keeps records in a bucket"


def read_foreign(deployed: Deployed, at: float) -> Snapshot:
    """Return everything that can be read of a namespace of a foreign cluster. `at` is the current time."""
    foreign = deployed.foreign
    assert foreign, "a stack is read by read_cluster"
    reader = Reader(deployed)
    found = _read(reader, foreign)
    queues = _Queues.of(found[LOCAL_QUEUES], _readable(reader, foreign, LOCAL_QUEUES))
    workloads = [queues.resolve(each) for each in found[WORKLOADS]]
    # Who may not see all workloads does not know who is ahead.
    complete = reader.has_read(everywhere(WORKLOADS)) and reader.has_read(everywhere(LOCAL_QUEUES))
    has_pods = reader.has_read(PODS.format(foreign.namespace))
    seen = _Seen(Admitted(workloads), complete, has_pods, _readable(reader, foreign, WORKLOADS), at)
    jobs = list(_jobs(foreign, found, queues, seen))
    own = {
        queue: foreign.namespace for (space, _), queue in queues.cluster_queues.items() if space == foreign.namespace
    }
    unknown = [] if any(job.folder for job in jobs) or not jobs else [NO_RECORDS]
    return Snapshot(
        stack="",
        options=deployed.options,
        cluster="",
        at=at,
        kubectl=deployed.reader.kubectl,
        answered=reader.answered,
        nodes=tuple(sorted(map(node_of, found[NODES]), key=lambda node: (node.pool, node.name))),
        queues=tuple(queues_of(found[QUEUES], own)),
        workloads=tuple(workloads),
        jobs=tuple(sorted(jobs, key=lambda job: job.created)),
        notes=(*foreign.notes, *reader.notes, *unknown),
        local_queues=tuple(name for space, name in queues.cluster_queues if space == foreign.namespace),
        place=deployed.place,
    )


@dataclass(frozen=True)
class _Seen:
    admitted: Admitted
    complete: bool
    """Whether `admitted` has the Workloads of all namespaces."""
    has_pods: bool
    """Whether this user may read pods."""
    has_workloads: bool
    """Whether the Workloads of the namespace could be read."""
    at: float


def _readable(reader: Reader, foreign: Foreign, path: str) -> bool:
    """Return whether Kueue's objects of the namespace could be read, whether or not those of all namespaces could."""
    return bool(foreign.kueue) and any(map(reader.has_read, (everywhere(path), path.format(foreign.namespace))))


def _read(reader: Reader, foreign: Foreign) -> Mapping[str, Sequence[Json]]:
    """Return the objects by the path of their collection, those of Kueue of all namespaces if this user may read them.

    The API server leaves out a specification in which nothing is set.
    """
    pods = {"labelSelector": JOB_NAME_LABEL}
    own = {JOBS: {}, PODS: pods, EVENTS: {}} | ({JOBSETS: {}} if foreign.has_jobsets else {})
    wanted = [
        (NODES, {"labelSelector": ACCELERATOR_LABEL}),
        *((path.format(foreign.namespace), own[path]) for path in own),
    ]
    if foreign.kueue:
        wanted += [(QUEUES, {}), *((everywhere(path), {}) for path in (WORKLOADS, LOCAL_QUEUES))]
    read = reader.read(wanted)
    found = dict.fromkeys((JOBSETS, QUEUES, WORKLOADS, LOCAL_QUEUES), list[Json]())
    found |= {path: read[path.format(foreign.namespace)] for path in (NODES, *own)}
    if foreign.kueue:
        found |= {QUEUES: read[QUEUES], **{path: read[everywhere(path)] for path in (WORKLOADS, LOCAL_QUEUES)}}
        refused = [path for path in (WORKLOADS, LOCAL_QUEUES) if not reader.has_read(everywhere(path))]
        near = reader.read([(path.format(foreign.namespace), {}) for path in refused])
        found |= {path: near[path.format(foreign.namespace)] for path in refused}
    return {path: [{"spec": {}, **each} for each in items] for path, items in found.items()}


@dataclass(frozen=True)
class _Queues:
    cluster_queues: Mapping[tuple[str, str], str]
    stopped: frozenset[tuple[str, str]]
    are_read: bool
    """Whether those of the namespace could be read."""

    @classmethod
    def of(cls, found: Sequence[Json], are_read: bool) -> "_Queues":
        named = [(each["metadata"].get("namespace", ""), each["metadata"]["name"], each) for each in found]
        return cls(
            {
                (space, name): each["spec"]["clusterQueue"]
                for space, name, each in named
                if each["spec"].get("clusterQueue")
            },
            frozenset((space, name) for space, name, each in named if stopped([each])),
            are_read,
        )

    def cluster_queue(self, namespace: str, name: str) -> str:
        """Return the ClusterQueue of a LocalQueue, or the name of the LocalQueue if that is not known."""
        return self.cluster_queues.get((namespace, name), name)

    def lacks(self, namespace: str, name: str) -> bool:
        """Return whether no such LocalQueue exists."""
        return self.are_read and bool(name) and (namespace, name) not in self.cluster_queues

    def resolve(self, found: Json) -> Workload:
        """Return a Workload with its ClusterQueue."""
        namespace, name = found["metadata"].get("namespace", ""), found["spec"].get("queueName", "")
        read = workload_of(found)
        # A job that names no LocalQueue is in no line.
        queue = read.admitted_by or ("" if self.lacks(namespace, name) else self.cluster_queue(namespace, name))
        return replace(read, queue=queue, paused=(namespace, name) in self.stopped)


def _jobs(foreign: Foreign, found: Mapping[str, Sequence[Json]], queues: _Queues, seen: _Seen) -> Iterator[JobStatus]:
    owned = Owned.of(found[PODS], found[JOBS], found[EVENTS])
    for jobset, kind, own, has_pods in _objects(foreign.namespace, found, seen.admitted):
        name, labels = jobset["metadata"]["name"], jobset["metadata"].get("labels", {})
        named = own.local_queue if own else labels.get(QUEUE_LABEL, "")
        queue = (own and own.queue) or queues.cluster_queue(foreign.namespace, named)
        job = job_of(jobset, JobRef(name, foreign.namespace, queue, kind), own, owned, seen.at)
        url = url_of(jobset)
        has_records = url.startswith(_BUCKET)
        yield replace(
            job,
            kind=job.kind if has_records else Kind.CONTAINER,
            folder=url if has_records else "",
            slices=job.slices if EXCLUSIVE in jobset["metadata"].get("annotations", {}) else 0,
            position=seen.admitted.positions.get(own.uid) if own and seen.complete else None,
            has_chips=any(chips_of(pods["template"]["spec"]["template"]) for pods in jobset["spec"]["replicatedJobs"]),
            has_pods=seen.has_pods and has_pods,
            has_workloads=seen.has_workloads,
            missing_queue=named if queues.lacks(foreign.namespace, named) else "",
        )


def _objects(
    namespace: str, found: Mapping[str, Sequence[Json]], admitted: Admitted
) -> Iterator[tuple[Object, str, Workload | None, bool]]:
    """Yield each job as a JobSet, with the kind of its object, its Workload, and whether its pods can be found."""
    left = dict(admitted.by_owner)
    for each in found[JOBSETS]:
        # A JobSet of a TrainJob has no Workload of its own.
        names = ("JobSet", each["metadata"]["name"]), *((owner["kind"], owner["name"]) for owner in owners_of(each))
        kind, own = next(
            ((kind, left.pop(key)) for kind, name in names if (key := (namespace, kind, name)) in left),
            ("JobSet", None),
        )
        yield as_jobset(each), kind, own, True
    for each in found[JOBS]:
        own = left.pop((namespace, "Job", each["metadata"]["name"]), None)
        if own or QUEUE_LABEL in each["metadata"].get("labels", {}):
            yield as_jobset(each), "Job", own, True
    raw = {each["metadata"].get("uid", ""): each for each in found[WORKLOADS]}
    for own in left.values():
        if own.namespace == namespace:
            yield jobset_of(raw[own.uid]), own.owner_kind, own, own.owner_kind == "Job"
