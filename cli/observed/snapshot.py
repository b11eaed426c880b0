"""A stack at one moment, as frozen values. Times are seconds since the epoch."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cli.deployed import JobPlace
from cli.observed.files import UNREAD, Files
from infra.job_state import Condition, Kind, Pod, State, Workload, state_of


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
    """Why it is not ready, in the cluster's words; empty if it is."""
    since: float
    """When it became ready, or ceased to be."""
    cordoned: bool
    bad_host: str
    """Why a trainer marked the slice's nodes as those of a bad host; empty if none did."""
    taints: tuple[str, ...]

    @property
    def usable(self) -> bool:
        """Whether pods can be placed on it."""
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
        """Whether it admits jobs, in Kueue's words; None: Kueue has not looked at it."""
        return next((each for each in self.conditions if each.kind == "Active"), None)


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
    """Kind of the object, such as `Pod`."""
    name: str
    reason: str
    message: str
    warning: bool


@dataclass(frozen=True)
class Job:
    """One job of the stack."""

    place: JobPlace
    declared: bool = False
    """Whether the stack file has it; if not, it was submitted by hand."""
    kind: Kind = Kind.TRAINING
    uid: str = ""
    """Empty: there is no JobSet of its name."""
    created: float = 0.0
    suspended: bool = False
    slices: int = 0
    hosts: int = 0
    """Pods of all slices when the job runs."""
    heads: int = 0
    """Pods that are no hosts of slices: one with Pathways, else none."""
    restarts: int = 0
    restarts_counted: int = 0
    max_restarts: int = 0
    terminal: str = ""
    """`Completed` or `Failed` once it has ended."""
    conditions: tuple[Condition, ...] = ()
    workload: Workload | None = None
    position: int | None = None
    """Position in its queue, from 1; None: it does not wait there."""
    slice_jobs: tuple[SliceJob, ...] = ()
    pods: tuple[Pod, ...] = ()
    """The newest pod of each host."""
    events: tuple[Event, ...] = ()
    """Events of the job, its Workload, its Jobs and its pods, the newest first."""
    files: Files = UNREAD

    @property
    def running(self) -> int:
        """Pods of slices that run, or have run to their end."""
        return sum(pod.is_up and not pod.is_head for pod in self.pods)

    @property
    def heads_running(self) -> int:
        """Heads that run, or have run to their end."""
        return sum(pod.is_up and pod.is_head for pod in self.pods)

    def said(self, kind: str) -> Condition | None:
        """The JobSet's condition of that kind; None: it has none."""
        return next((each for each in self.conditions if each.kind == kind), None)

    @property
    def state(self) -> State:
        if not self.uid:
            return State.MISSING
        all_run = bool(self.hosts) and self.running >= self.hosts and self.heads_running >= self.heads
        any_left = any(pod.phase in ("Running", "Terminating") for pod in self.pods)
        return state_of(self.terminal, self.workload, suspended=self.suspended, all_run=all_run, any_left=any_left)


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
    """Whether the cluster answered at all."""
    usd_per_hour: float | None = None
    """Price of all slices of the stack; None: unknown."""
    nodes: tuple[Node, ...] = ()
    hostless: Mapping[str, str] = field(default_factory=dict[str, str])
    """Topologies, by name, of the slices that are always on and have no node."""
    queues: tuple[Queue, ...] = ()
    workloads: tuple[Workload, ...] = ()
    """Workloads of all jobs that could be read."""
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
        """The node of that name; None: there is none."""
        return next((node for node in self.nodes if node.name == name), None)


@dataclass(frozen=True)
class Summary:
    """The figures of one job, the same for every command that shows one."""

    name: str
    namespace: str
    queue: str
    kind: Kind
    state: State
    position: int | None
    """Position in its queue, from 1; None: it does not wait there."""
    age_seconds: float | None
    """Time since it was submitted; None: it is missing."""
    slices: int
    hosts: int
    """Hosts of all slices."""
    hosts_running: int
    restarts: int
    max_restarts: int
    """Most restarts of those that count."""
    run: str
    """Folder name of its current run; empty before the first start has opened it."""
    step: int
    steps: int
    loss: float | None
    tokens_per_second: float
    seconds_left: float | None
    """Time left at the pace of the last step; None while it does not run."""
    checkpoint_step: int | None
    usd: float | None
    """Spent so far in its current run; None: unknown."""
    goodput: float | None
    """Share of productive steps in the time of the run."""


def summary(job: Job, at: float) -> Summary:
    """Return the figures of a job at the moment `at`."""
    training, spent = job.files.training, job.files.goodput
    runs = job.state is State.RUNNING and training.step > 0
    return Summary(
        name=job.place.name,
        namespace=job.place.namespace,
        queue=job.place.queue,
        kind=job.kind,
        state=job.state,
        position=job.position,
        age_seconds=at - job.created if job.uid else None,
        slices=job.slices,
        hosts=job.hosts,
        hosts_running=job.running,
        restarts=job.restarts,
        max_restarts=job.max_restarts,
        run=training.run_id,
        step=training.step,
        steps=training.steps,
        loss=training.loss,
        tokens_per_second=training.tokens_per_second,
        seconds_left=training.seconds_left() if runs else None,
        checkpoint_step=training.checkpoint_step,
        usd=job.files.usd,
        goodput=spent.productive if spent else None,
    )
