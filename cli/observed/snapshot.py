"""A stack at one moment.

Owns the model alone: `cluster` and `files` read it, the commands show it. Times are seconds since the epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from cli.deployed import JobPlace
from cli.observed.files import UNREAD, Files
from cli.observed.kind import Kind
from cli.observed.objects import Condition
from cli.observed.pod import Pod


class State(StrEnum):
    """Of a job, in the order in which they come."""

    MISSING = "not there"
    """No JobSet has its name."""
    QUEUED = "queued"
    EVICTED = "evicted"
    """It ran and was put back into the queue; its hosts save, or it waits."""
    PAUSED = "paused"
    """Its queue is stopped, which `paused` in the stack file does, and its hosts have ended."""
    HELD = "held"
    """Its queue will not admit it again by itself."""
    STARTING = "starting"
    """Admitted; some of its hosts, or its head, do not run yet."""
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True)
class Node:
    """A host of a slice, whether or not a job uses it."""

    name: str
    pool: str
    """Node pool, which is the slice."""
    topology: str
    chips: int
    ready: bool
    not_ready: str
    """Why it is not, in the cluster's words; empty if it is."""
    since: float
    """When it became ready, or ceased to be."""
    cordoned: bool
    bad_host: str
    """Why a trainer marked the slice's nodes as those of a bad host; empty if none did."""
    taints: tuple[str, ...]

    @property
    def usable(self) -> bool:
        """Whether pods may come to it."""
        return self.ready and not self.cordoned and not self.bad_host


@dataclass(frozen=True)
class Share:
    """Chips of one flavor in a queue."""

    flavor: str
    quota: int
    used: int
    borrowed: int


@dataclass(frozen=True)
class Queue:
    """A team's queue: its ClusterQueue."""

    name: str
    namespace: str
    shares: tuple[Share, ...]
    pending: int
    admitted: int
    conditions: tuple[Condition, ...]

    @property
    def active(self) -> Condition | None:
        """Whether it admits jobs, in Kueue's words; None: it has not said."""
        return next((told for told in self.conditions if told.kind == "Active"), None)


@dataclass(frozen=True)
class Workload:
    """What Kueue holds for a job."""

    name: str
    uid: str
    namespace: str
    queue: str
    owner: str
    """Name of the JobSet."""
    priority: int
    chips: int
    created: float
    active: bool
    """Kueue admits none that is not."""
    admitted_by: str
    """ClusterQueue whose quota it holds; empty while it waits."""
    flavors: tuple[str, ...]
    requeue_at: float | None
    """Before that it is not looked at again; None: at any time."""
    evictions: Mapping[str, int]
    """How often for which reason."""
    checks: tuple[tuple[str, str, str], ...]
    """Admission checks that it needs: name, state and message."""
    conditions: tuple[Condition, ...]
    paused: bool = False
    """Whether its LocalQueue is stopped."""

    def said(self, kind: str) -> Condition | None:
        """The condition of that kind; None: nobody has said it."""
        return next((told for told in self.conditions if told.kind == kind), None)

    def holds(self, kind: str) -> bool:
        """Whether the condition of that kind is said and holds."""
        told = self.said(kind)
        return told is not None and told.holds

    @property
    def waits(self) -> bool:
        """Whether it is in line."""
        return not self.admitted_by and not self.holds("Finished") and self.active and not self.paused


@dataclass(frozen=True)
class SliceJob:
    """The batch Job of one slice."""

    name: str
    slice_index: int
    ready: int
    failed: int
    conditions: tuple[Condition, ...]


@dataclass(frozen=True)
class Event:
    """What a component of the cluster did or could not do."""

    at: float
    kind: str
    """Of the object, such as `Pod`."""
    name: str
    reason: str
    message: str
    warning: bool


@dataclass(frozen=True)
class Job:
    """One job of the stack."""

    place: JobPlace
    kind: Kind = Kind.TRAINING
    declared: bool = False
    """Whether the stack file has it; if not, somebody submitted it by hand."""
    uid: str = ""
    """Empty: no JobSet has its name."""
    created: float = 0.0
    suspended: bool = False
    slices: int = 0
    hosts: int = 0
    """Pods of slices that it has when all are there."""
    heads: int = 0
    """Pods that it has beside them: one by Pathways, else none."""
    restarts: int = 0
    restarts_counted: int = 0
    max_restarts: int = 0
    terminal: str = ""
    """`Completed` or `Failed` once it has ended."""
    conditions: tuple[Condition, ...] = ()
    workload: Workload | None = None
    position: int | None = None
    """In its queue, from 1; None: it does not wait there."""
    slice_jobs: tuple[SliceJob, ...] = ()
    pods: tuple[Pod, ...] = ()
    """The newest of each host."""
    events: tuple[Event, ...] = ()
    """Those of the job, its Workload, its Jobs and its pods, the newest first."""
    files: Files = UNREAD

    @property
    def running(self) -> int:
        """Pods of slices that run, or have run to their end."""
        return sum(_up(pod) and not pod.is_head for pod in self.pods)

    @property
    def heads_running(self) -> int:
        """The same of heads."""
        return sum(_up(pod) and pod.is_head for pod in self.pods)

    def said(self, kind: str) -> Condition | None:
        """The JobSet's condition of that kind; None: nobody has said it."""
        return next((told for told in self.conditions if told.kind == kind), None)

    @property
    def state(self) -> State:
        if not self.uid:
            return State.MISSING
        if self.terminal:
            return State.COMPLETED if self.terminal == "Completed" else State.FAILED
        workload = self.workload
        if workload is None or not workload.admitted_by:
            if workload and workload.paused:
                # Kueue frees the quota before the hosts have saved.
                return (
                    State.EVICTED if any(pod.phase in ("Running", "Terminating") for pod in self.pods) else State.PAUSED
                )
            return _unadmitted(workload, suspended=self.suspended)
        runs = self.hosts and self.running >= self.hosts and self.heads_running >= self.heads
        return State.RUNNING if runs else State.STARTING


def _up(pod: Pod) -> bool:
    return pod.phase in ("Running", "Succeeded")


def _unadmitted(workload: Workload | None, *, suspended: bool) -> State:
    if workload is None:
        return State.QUEUED if suspended else State.STARTING
    if not workload.active:
        return State.HELD
    return State.EVICTED if workload.holds("Evicted") else State.QUEUED


@dataclass(frozen=True)
class Snapshot:
    """All that is known at one moment."""

    stack: str
    options: str
    """How a command line names the stack, such as `-s dev --engine sandbox`."""
    cluster: str
    at: float
    in_sandbox: bool = False
    answered: bool = True
    """Whether the cluster could be asked at all."""
    usd_per_hour: float | None = None
    """Of all slices of the stack; None: unknown."""
    nodes: tuple[Node, ...] = ()
    hostless: Mapping[str, str] = field(default_factory=dict[str, str])
    """Topologies, by name, of the slices that shall always stand and have no node."""
    queues: tuple[Queue, ...] = ()
    workloads: tuple[Workload, ...] = ()
    """Of all jobs that could be seen."""
    jobs: tuple[Job, ...] = ()
    notes: tuple[str, ...] = ()
    """What could not be read, and why."""

    def job(self, name: str) -> Job:
        """The first job of that name.

        Raises:
            StopIteration: it was not looked at.
        """
        return next(job for job in self.jobs if job.place.name == name)

    def queue_of(self, job: Job) -> Queue | None:
        """The queue that the job waits in or was admitted by."""
        return next((queue for queue in self.queues if queue.name == job.place.queue), None)

    def node(self, name: str) -> Node | None:
        """The node of that name, if it is there."""
        return next((node for node in self.nodes if node.name == name), None)
