"""Reads a stack's cluster into values.

Owns which collections are asked for. One that is missing or forbidden is a note: members of a team may see their
own namespace alone, and an operator may be away.
"""

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from cli.deployed import Deployed, JobPlace
from cli.observed import kueue
from cli.observed.kind import kind_of
from cli.observed.objects import Object, condition, conditions, is_true, moment
from cli.observed.place import place_in
from cli.observed.pod import newest
from cli.observed.snapshot import Event, Job, Node, Queue, SliceJob, Workload
from infra.kubernetes import UNREACHABLE, ApiError, ApiServer, Json
from infra.names import (
    ACCELERATOR_LABEL,
    EVENTS,
    HEAD,
    JOB_INDEX_LABEL,
    JOBS,
    JOBSET_LABEL,
    JOBSETS,
    LOCAL_QUEUES,
    NODE_POOL_LABEL,
    NODES,
    PODS,
    QUEUES,
    REPLICATED_JOB_LABEL,
    TOPOLOGY_LABEL,
    TPU_RESOURCE,
    WORKLOADS,
)
from workloads.spec import BAD_HOST_KEY

_REQUESTS_AT_ONCE = 8
_MOST_EVENTS = 200
"""Of one job, the newest; the API server keeps them for an hour."""


@dataclass(frozen=True)
class Cluster:
    """What the API server tells of a stack."""

    answered: bool
    """Whether it told anything."""
    nodes: tuple[Node, ...]
    nodes_told: bool
    """Whether it told of nodes, which members of a team may not be allowed to see."""
    queues: tuple[Queue, ...]
    workloads: tuple[Workload, ...]
    jobs: tuple[Job, ...]
    notes: tuple[str, ...]


@dataclass
class _Reader:
    api: ApiServer
    faults: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Paths by what kept them from being read."""

    def read(self, asked: Iterable[tuple[str, Mapping[str, str]]]) -> dict[str, list[Json]]:
        """The objects of each path."""
        wanted = list(asked)
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
            found = pool.map(lambda each: self._items(*each), wanted)
            return {path: items for (path, _), items in zip(wanted, found, strict=True)}

    def _items(self, path: str, query: Mapping[str, str]) -> list[Json]:
        try:
            return self.api.request("GET", path, query=query)["items"]
        except UNREACHABLE as fault:
            told = f"{fault.status} {fault.reason}" if isinstance(fault, ApiError) else str(fault)
            self.faults.setdefault(told.strip(), []).append(_short(path))
            return []

    def has_read(self, path: str) -> bool:
        return not any(_short(path) in paths for paths in self.faults.values())

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(f"cannot read {', '.join(sorted(paths))}: {told}" for told, paths in sorted(self.faults.items()))


def _short(path: str) -> str:
    return path.removeprefix("/apis/").removeprefix("/api/v1/")


def read_cluster(deployed: Deployed, at: float) -> Cluster:
    """All that can be read at the moment `at`."""
    reader, namespaces = _Reader(deployed.api), deployed.namespaces
    of_jobset = {"labelSelector": JOBSET_LABEL}
    found = reader.read(
        [
            (NODES, {"labelSelector": ACCELERATOR_LABEL}),
            (QUEUES, {}),
            *((path.format(name), {}) for name in namespaces for path in (JOBSETS, WORKLOADS, LOCAL_QUEUES, EVENTS)),
            *((path.format(name), of_jobset) for name in namespaces for path in (PODS, JOBS)),
        ]
    )
    queues: Mapping[str, str] = deployed.outputs.get("queues", {})
    workloads = [
        kueue.workload(each, kueue.stopped(found[LOCAL_QUEUES.format(name)]))
        for name in namespaces
        for each in found[WORKLOADS.format(name)]
    ]
    jobs = [job for name in namespaces for job in _jobs_in(name, found, workloads, at)]
    return Cluster(
        answered=sum(map(len, reader.faults.values())) < len(found),
        nodes=tuple(sorted(map(_node, found[NODES]), key=lambda node: (node.pool, node.name))),
        nodes_told=reader.has_read(NODES),
        queues=tuple(kueue.queue(each, dict(queues)) for each in found[QUEUES] if each["metadata"]["name"] in queues),
        workloads=tuple(workloads),
        jobs=tuple(_in_order(deployed.jobs, jobs)),
        notes=reader.notes,
    )


def _in_order(declared: Sequence[JobPlace], found: Sequence[Job]) -> list[Job]:
    """The stack's own jobs first, also those that are not there; then what was submitted by hand, by age."""
    own = {(place.namespace, place.name): Job(place) for place in declared}
    there = {(job.place.namespace, job.place.name): job for job in found}
    others = sorted((job for key, job in there.items() if key not in own), key=lambda job: job.created)
    return [*(replace(there.get(key, missing), declared=True) for key, missing in own.items()), *others]


def _jobs_in(namespace: str, found: Mapping[str, list[Json]], workloads: Sequence[Workload], at: float) -> list[Job]:
    pods, jobs = _by_jobset(found[PODS.format(namespace)]), _by_jobset(found[JOBS.format(namespace)])
    events = found[EVENTS.format(namespace)]
    told: list[Job] = []
    for jobset in found[JOBSETS.format(namespace)]:
        name = jobset["metadata"]["name"]
        held = next((each for each in workloads if (each.namespace, each.owner) == (namespace, name)), None)
        about = {name, held.name if held else name, *(each["metadata"]["name"] for each in jobs.get(name, []))}
        own_pods = pods.get(name, [])
        about |= {pod["metadata"]["name"] for pod in own_pods}
        told.append(
            Job(
                **_of_jobset(jobset, namespace),
                workload=held,
                position=kueue.position(workloads, held) if held else None,
                slice_jobs=tuple(_slice_job(each) for each in jobs.get(name, []) if _of_slice(each)),
                pods=newest(own_pods, at),
                events=_events(events, about, at),
            )
        )
    return told


def _by_jobset(items: Iterable[Json]) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for item in items:
        found.setdefault(item["metadata"]["labels"][JOBSET_LABEL], []).append(item)
    return found


def _of_jobset(found: Object, namespace: str) -> dict[str, Any]:
    metadata, spec, status = found["metadata"], found["spec"], found.get("status", {})
    jobs: list[dict[str, Any]] = spec["replicatedJobs"]
    slices, heads = [job for job in jobs if job["name"] != HEAD], [job for job in jobs if job["name"] == HEAD]
    return {
        "place": place_in(found, namespace),
        "kind": kind_of(found),
        "uid": metadata["uid"],
        "created": moment(metadata, "creationTimestamp", 0.0),
        "suspended": bool(spec.get("suspend", False)),
        "slices": sum(job.get("replicas", 1) for job in slices),
        "hosts": _pods(slices),
        "heads": _pods(heads),
        "restarts": status.get("restarts", 0),
        "restarts_counted": status.get("restartsCountTowardsMax", 0),
        "max_restarts": spec.get("failurePolicy", {}).get("maxRestarts", 0),
        "terminal": status.get("terminalState", ""),
        "conditions": conditions(found),
    }


def _pods(jobs: Iterable[Mapping[str, Any]]) -> int:
    """Those that replicated jobs have when all are there."""
    return sum(job.get("replicas", 1) * job["template"]["spec"].get("parallelism", 1) for job in jobs)


def _of_slice(found: Object) -> bool:
    return found["metadata"]["labels"].get(REPLICATED_JOB_LABEL) != HEAD


def _slice_job(found: Object) -> SliceJob:
    metadata, status = found["metadata"], found.get("status", {})
    index = int(metadata["labels"].get(JOB_INDEX_LABEL, 0))
    return SliceJob(metadata["name"], index, status.get("ready", 0), status.get("failed", 0), conditions(found))


def _events(found: Iterable[Json], about: set[str], at: float) -> tuple[Event, ...]:
    told = [_event(each, at) for each in found if each["involvedObject"].get("name") in about]
    return tuple(sorted(told, key=lambda event: event.at, reverse=True)[:_MOST_EVENTS])


def _event(found: Object, at: float) -> Event:
    made = moment(found["metadata"], "creationTimestamp", at)
    last = moment(found, "lastTimestamp", moment(found, "eventTime", made))
    about, reason = found["involvedObject"], found.get("reason", "")
    warning = found.get("type") == "Warning"
    return Event(last, about.get("kind", ""), about["name"], reason, found.get("message", ""), warning)


def _node(found: Object) -> Node:
    metadata, spec = found["metadata"], found["spec"]
    labels, ready = metadata["labels"], condition(found, "Ready")
    taints = spec.get("taints", [])
    marked = any(taint["key"] == BAD_HOST_KEY for taint in taints)
    holds = is_true(found, "Ready")
    return Node(
        name=metadata["name"],
        pool=labels.get(NODE_POOL_LABEL, ""),
        topology=labels.get(TOPOLOGY_LABEL, ""),
        chips=kueue.count(found.get("status", {}).get("allocatable", {}).get(TPU_RESOURCE, 0)),
        ready=holds,
        not_ready="" if holds else ready.get("message", "its machine has not reported"),
        since=moment(ready, "lastTransitionTime", 0.0),
        cordoned=bool(spec.get("unschedulable")),
        bad_host=metadata.get("annotations", {}).get(BAD_HOST_KEY, "marked by hand") if marked else "",
        taints=tuple(taint["key"] for taint in taints),
    )
