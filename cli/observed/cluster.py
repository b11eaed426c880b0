"""Reads a stack's cluster into a snapshot.

A missing or forbidden collection becomes a note, because members of a team may see only their own namespace, and an
operator may be down.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from cli.deployed import Deployed, JobRef
from cli.observed.causes import index_events, warnings_of
from cli.observed.snapshot import JobStatus, Node, Queue, Share, SliceJob, Snapshot
from infra.cluster.job_pods import POD_LABELS, job_restarts, newest, restarts_counted
from infra.cluster.job_state import Workload, chips_of, existing_run_of, folder_of, kind_of, steps_of, workload_of
from infra.cluster.kubernetes import FORBIDDEN, UNREACHABLE, ApiError, Json, right
from infra.stack.cost import BILL_OUTPUT, read_bill
from infra.stack.manifests import Object, amount, cohort_of, condition, conditions, is_stopped, is_true, moment
from infra.stack.names import (
    ACCELERATOR_LABEL,
    BUDGET_ANNOTATION,
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
    USED_ANNOTATION,
    WORKLOADS,
    slice_pool,
)
from workloads.spec import BAD_HOST_KEY

_REQUESTS_AT_ONCE = 8


def read_cluster(deployed: Deployed, at: float) -> Snapshot:
    """Return everything that can be read from the cluster of a stack. `at` is the current time."""
    reader, namespaces = Reader(deployed), deployed.namespaces
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
        workload_of(each, stopped(found[LOCAL_QUEUES.format(name)]))
        for name in namespaces
        for each in found[WORKLOADS.format(name)]
    ]
    admitted = Admitted(workloads)
    jobs = [job for name in namespaces for job in _jobs_in(name, found, admitted, reader, at)]
    nodes = sorted(map(node_of, found[NODES]), key=lambda node: (node.pool, node.name))
    price: Mapping[str, Any] = deployed.outputs.get("bill", {}).get("at_once", {})
    # Members of a team may not be allowed to read nodes.
    hostless = find_hostless(deployed.outputs, {each.pool for each in nodes}) if reader.has_read(NODES) else None
    return Snapshot(
        stack=deployed.stack,
        options=deployed.options,
        cluster=deployed.outputs.get("cluster", ""),
        at=at,
        engine_options=deployed.engine_options,
        kubectl=deployed.reader.kubectl,
        answered=reader.answered,
        usd_per_hour=None if price.get("unknown") else price.get("usd_per_hour"),
        nodes=tuple(nodes),
        hostless=hostless or {},
        queues=tuple(queues_of(found[QUEUES], queues)),
        workloads=tuple(workloads),
        jobs=tuple(_in_order(deployed.jobs, jobs)),
        notes=reader.notes,
        place=deployed.place,
    )


def find_hostless(outputs: Mapping[str, Any], pools: Collection[str]) -> dict[str, str] | None:
    """Return the topologies, by name, of the slices that are always on but not in `pools`, the pools with nodes.

    A slice on request is never among them, because it has no host until a job needs it. None: another version of the
    program wrote the stack's outputs, so that they cannot be read.
    """
    bill = read_bill(outputs.get(BILL_OUTPUT))
    if bill is None:
        return None
    return {
        name: group.topology
        for group in bill.groups
        if group.billed == "standing"
        for name in (slice_pool(group.name, index) for index in range(group.slices))
        if name not in pools
    }


@dataclass
class Reader:
    """Reads collections, and records what cannot be read."""

    deployed: Deployed
    answered: bool = False
    """Whether any collection could be read."""
    refused: list[str] = field(default_factory=list[str])
    """Paths that this user may not read."""
    errors: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    """Other paths that could not be read, by error."""

    def read(self, wanted: Sequence[tuple[str, Mapping[str, str]]]) -> dict[str, list[Json]]:
        """Return the objects of each path. `wanted` has paths with their queries."""
        with ThreadPoolExecutor(_REQUESTS_AT_ONCE) as pool:
            found = pool.map(lambda each: self._items(*each), wanted)
            return {path: items for (path, _), items in zip(wanted, found, strict=True)}

    def _items(self, path: str, query: Mapping[str, str]) -> list[Json]:
        path = self.deployed.served(path)
        try:
            items = self.deployed.api.request("GET", path, query=query)["items"]
            self.answered = True
            return items
        except UNREACHABLE as error:
            if isinstance(error, ApiError) and error.status == FORBIDDEN:
                self.refused.append(path)
                return []
            text = f"{error.status} {error.reason}" if isinstance(error, ApiError) else str(error)
            self.errors.setdefault(text.strip(), []).append(_short(path))
            return []

    def has_read(self, path: str) -> bool:
        path = self.deployed.served(path)
        return path not in self.refused and not any(_short(path) in paths for paths in self.errors.values())

    @property
    def notes(self) -> tuple[str, ...]:
        rights = tuple(f"you may not {right(path)}" for path in sorted(self.refused))
        failures = (f"cannot read {', '.join(sorted(paths))}: {text}" for text, paths in sorted(self.errors.items()))
        return (*rights, *failures)


def _short(path: str) -> str:
    return path.removeprefix("/apis/").removeprefix("/api/v1/")


def _in_order(declared: Sequence[JobRef], found: Sequence[JobStatus]) -> list[JobStatus]:
    """Return the stack's own jobs, including missing ones, then those that were submitted by hand, oldest first."""
    own = {(ref.namespace, ref.name): JobStatus(ref) for ref in declared}
    present = {(job.ref.namespace, job.ref.name): job for job in found}
    others = sorted((job for key, job in present.items() if key not in own), key=lambda job: job.created)
    return [*(replace(present.get(key, missing), declared=True) for key, missing in own.items()), *others]


def _jobs_in(
    namespace: str, found: Mapping[str, list[Json]], admitted: "Admitted", reader: Reader, at: float
) -> Iterator[JobStatus]:
    has_pods, has_workloads = (reader.has_read(path.format(namespace)) for path in (PODS, WORKLOADS))
    owned = Owned.of(*(found[path.format(namespace)] for path in (PODS, JOBS, EVENTS)))
    for jobset in found[JOBSETS.format(namespace)]:
        ref = JobRef.of(jobset, namespace)
        own = admitted.by_owner.get((namespace, ref.kind, ref.name))
        position = admitted.positions.get(own.uid) if own else None
        job = job_of(jobset, ref, own, owned, at)
        yield replace(job, position=position, has_pods=has_pods, has_workloads=has_workloads)


@dataclass(frozen=True)
class Admitted:
    """Workloads, by the objects that they admit and by their queues."""

    workloads: Sequence[Workload]

    @cached_property
    def by_owner(self) -> Mapping[tuple[str, str, str], Workload]:
        """Return them by namespace, kind and name of their owner; of several, the first."""
        listed = reversed(self.workloads)
        return {(each.namespace, each.owner_kind, each.owner or each.name): each for each in listed}

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """Return the positions of those that wait, each in its queue, from 1, in the order of admission, by uid."""
        queues: defaultdict[str, list[Workload]] = defaultdict(list)
        for each in sorted(self.workloads, key=lambda each: (-each.priority, each.queued_at, each.name)):
            if each.waits and each.queue:
                queues[each.queue].append(each)
        return {each.uid: place for line in queues.values() for place, each in enumerate(line, 1)}


@dataclass(frozen=True)
class Owned:
    """Objects that jobs of a namespace own: pods and Jobs by kind and name of the job, and events as indexed."""

    pods: Mapping[tuple[str, str], Sequence[Json]]
    jobs: Mapping[tuple[str, str], Sequence[Json]]
    events: Mapping[str, Sequence[tuple[int, Object]]]

    @classmethod
    def of(cls, pods: Iterable[Json], jobs: Iterable[Json], events: Iterable[Json]) -> "Owned":
        return cls(_by_job(pods), _by_job(jobs), index_events(events))


def job_of(jobset: Object, ref: JobRef, own: Workload | None, owned: Owned, at: float) -> JobStatus:
    """Return a job by its JobSet, or by another object that is read as one, and by its Workload, if it has one."""
    name, metadata = jobset["metadata"]["name"], jobset["metadata"]
    spec, status, replicated = jobset["spec"], jobset.get("status", {}), jobset["spec"]["replicatedJobs"]
    without_chips = _heads(replicated)
    slices, heads = [[job for job in replicated if (job["name"] in without_chips) is head] for head in (False, True)]
    of_slices = sum(job_restarts(jobset).values())
    key = "Job" if ref.kind == "Job" else "JobSet", name
    pods, jobs = owned.pods.get(key, ()), owned.jobs.get(key, ())
    return JobStatus(
        ref=ref,
        kind=kind_of(jobset),
        folder=folder_of(jobset),
        existing_run=existing_run_of(jobset),
        steps=steps_of(jobset),
        uid=metadata["uid"],
        created=moment(metadata, "creationTimestamp", 0.0),
        suspended=bool(spec.get("suspend", False)),
        slices=sum(job.get("replicas", 1) for job in slices),
        hosts=_pods(slices),
        heads=_pods(heads),
        restarts=status.get("restarts", 0) + of_slices,
        restarts_of_slices=of_slices,
        restarts_counted=restarts_counted(status),
        max_restarts=spec.get("failurePolicy", {}).get("maxRestarts", 0),
        terminal=status.get("terminalState", ""),
        deleted=moment(metadata, "deletionTimestamp", 0.0) or None,
        finalizers=tuple(metadata.get("finalizers", ())),
        conditions=conditions(jobset),
        workload=own,
        slice_jobs=tuple(_slice_jobs(jobs)),
        pods=tuple(replace(pod, without_chips=pod.replicated_job in without_chips) for pod in newest(pods, at)),
        events=warnings_of(jobset, own.name if own else name, owned.events, jobs, pods, at),
    )


def _heads(replicated: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the names of the replicated jobs without hosts of slices: heads, or those that alone request no chips."""
    chips = {job["name"]: chips_of(job["template"]["spec"]["template"]) for job in replicated}
    return {HEAD, *(name for name, count in chips.items() if any(chips.values()) and not count)}


def _by_job(items: Iterable[Json]) -> Mapping[tuple[str, str], Sequence[Json]]:
    found: defaultdict[tuple[str, str], list[Json]] = defaultdict(list)
    for item in items:
        labels = item["metadata"].get("labels", {})
        # The pods of a JobSet are those of its Jobs.
        kind = next((kind for kind, label in POD_LABELS.items() if label in labels), None)
        if kind:
            found[kind, labels[POD_LABELS[kind]]].append(item)
    return found


def _pods(jobs: Iterable[Mapping[str, Any]]) -> int:
    return sum(job.get("replicas", 1) * job["template"]["spec"].get("parallelism", 1) for job in jobs)


def _slice_jobs(jobs: Iterable[Object]) -> Iterator[SliceJob]:
    for found in jobs:
        metadata, status = found["metadata"], found.get("status", {})
        if metadata["labels"].get(REPLICATED_JOB_LABEL) != HEAD:
            index = int(metadata["labels"].get(JOB_INDEX_LABEL, 0))
            figures = status.get("ready", 0), status.get("failed", 0)
            yield SliceJob(metadata["name"], index, *figures, conditions(found))


def node_of(found: Object) -> Node:
    """Return a Node object as a value."""
    metadata, spec = found["metadata"], found["spec"]
    labels, ready = metadata["labels"], condition(found, "Ready")
    taints = spec.get("taints", [])
    marked = any(taint["key"] == BAD_HOST_KEY for taint in taints)
    is_ready = is_true(found, "Ready")
    return Node(
        name=metadata["name"],
        pool=labels.get(NODE_POOL_LABEL, ""),
        topology=labels.get(TOPOLOGY_LABEL, ""),
        chips=int(amount(found.get("status", {}).get("allocatable", {}).get(TPU_RESOURCE, 0))),
        ready=is_ready,
        not_ready="" if is_ready else ready.get("message", "its machine has not reported"),
        since=moment(ready, "lastTransitionTime", 0.0),
        cordoned=bool(spec.get("unschedulable")),
        bad_host=metadata.get("annotations", {}).get(BAD_HOST_KEY, "marked by hand") if marked else "",
        taints=tuple(taint["key"] for taint in taints),
    )


def queues_of(found: Sequence[Object], namespaces: Mapping[str, str]) -> Iterator[Queue]:
    """Yield the ClusterQueues in `namespaces`, which has the namespace of each queue's jobs. `found` has all."""
    cohorts: defaultdict[str | None, list[str]] = defaultdict(list)
    for each in found:
        cohorts[cohort_of(each)].append(each["metadata"]["name"])
    for each in found:
        if each["metadata"]["name"] in namespaces:
            cohort = cohort_of(each)
            yield replace(queue_of(each, namespaces), cohort_members=tuple(cohorts[cohort] if cohort else ()))


def queue_of(found: Object, namespaces: Mapping[str, str]) -> Queue:
    """Return a ClusterQueue, without its cohort. `namespaces` has the namespace of each queue's jobs."""
    status, name = found.get("status", {}), found["metadata"]["name"]
    annotations = found["metadata"].get("annotations", {})
    return Queue(
        name=name,
        namespace=namespaces.get(name, ""),
        shares=tuple(_shares(found["spec"].get("resourceGroups", []), status.get("flavorsReservation", []))),
        pending=status.get("pendingWorkloads", 0),
        admitted=status.get("reservingWorkloads", 0),
        conditions=conditions(found),
        over_budget=annotations.get(BUDGET_ANNOTATION, ""),
        used=annotations.get(USED_ANNOTATION, ""),
    )


def _shares(groups: Sequence[dict[str, Any]], reserved: Sequence[dict[str, Any]]) -> list[Share]:
    used = _chips_by_flavor(reserved)
    quotas = _chips_by_flavor([flavor for group in groups for flavor in group["flavors"]])
    return [
        Share(
            name,
            int(amount(quota.get("nominalQuota", 0))),
            *(int(amount(used.get(name, {}).get(key, 0))) for key in ("total", "borrowed")),
        )
        for name, quota in quotas.items()
    ]


def _chips_by_flavor(flavors: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {flavor["name"]: each for flavor in flavors for each in flavor["resources"] if each["name"] == TPU_RESOURCE}


def stopped(local_queues: Iterable[Object]) -> set[str]:
    """Return the names of the LocalQueues from which Kueue admits no jobs."""
    return {each["metadata"]["name"] for each in local_queues if is_stopped(each)}
