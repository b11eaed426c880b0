"""Frozen values with the state of a stack at one moment. Times are in seconds since the epoch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cli.deployed import JobPlace
from cli.observed.files import UNREAD, Files
from infra.commands import command_line
from infra.job_state import Condition, Kind, Pod, State, Workload, state_of


@dataclass(frozen=True)
class Node:
    """A host of a slice, whether or not a job uses it."""

    name: str
    pool: str
    """Node pool of the node, which is its slice."""
    topology: str
    chips: int
    ready: bool
    not_ready: str
    """Message of the cluster about why it is not ready. Empty: it is ready."""
    since: float
    """Time at which it last became ready or not ready."""
    cordoned: bool
    bad_host: str
    """Why a trainer marked the nodes of the slice as bad. Empty: they are not marked."""
    taints: tuple[str, ...]

    @property
    def usable(self) -> bool:
        """Whether pods can be placed on the node."""
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
    """ClusterQueue of a team."""

    name: str
    namespace: str
    shares: tuple[Share, ...]
    pending: int
    admitted: int
    conditions: tuple[Condition, ...]
    over_budget: str = ""
    """What `multislice enforce-budget` stopped it for. Empty: it did not stop it."""
    used: str = ""
    """What `multislice enforce-budget` has counted, as `infra.brake.Usage` writes it. Empty: nothing yet."""

    @property
    def active(self) -> Condition | None:
        """Kueue's condition about whether the queue admits jobs. None: Kueue has not processed the queue."""
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
    """Event of a component of the cluster."""

    at: float
    kind: str
    """Kind of the object of the event, such as `Pod`."""
    name: str
    reason: str
    message: str
    warning: bool


@dataclass(frozen=True)
class Job:
    """A job of the stack."""

    place: JobPlace
    declared: bool = False
    """Whether the stack file has the job. False: it was submitted by hand."""
    kind: Kind = Kind.TRAINING
    folder: str = ""
    """Folder in the checkpoint bucket that its specification names, if it is a training job."""
    uid: str = ""
    """Uid of the JobSet. Empty: the JobSet does not exist."""
    created: float = 0.0
    suspended: bool = False
    slices: int = 0
    hosts: int = 0
    """Number of pods on all slices when the job runs."""
    heads: int = 0
    """Number of pods that are not hosts of slices: 1 with Pathways, else 0."""
    restarts: int = 0
    restarts_counted: int = 0
    max_restarts: int = 0
    fewest_slices: int | None = None
    """Smallest number of slices that go on without the others. None: all slices stop together."""
    slice_restarts: tuple[int, ...] = ()
    """Restarts of each slice alone. Slices that never restarted may be missing at the end."""
    terminal: str = ""
    """`Completed` or `Failed` after the job has ended, else empty."""
    conditions: tuple[Condition, ...] = ()
    workload: Workload | None = None
    position: int | None = None
    """Position in its queue, from 1. None: the job is not waiting."""
    slice_jobs: tuple[SliceJob, ...] = ()
    pods: tuple[Pod, ...] = ()
    """Newest pod of each host."""
    events: tuple[Event, ...] = ()
    """Events of the job, its Workload, its Jobs and its pods, newest first."""
    files: Files = UNREAD

    @property
    def running(self) -> int:
        """Number of pods of slices that are running or have completed."""
        return sum(pod.is_up and not pod.is_head for pod in self.pods)

    @property
    def heads_running(self) -> int:
        """Number of heads that are running or have completed."""
        return sum(pod.is_up and pod.is_head for pod in self.pods)

    @property
    def _enough_run(self) -> bool:
        if self.fewest_slices is None:
            return self.running >= self.hosts
        return sum(self.has_slice(one) for one in range(self.slices)) >= self.fewest_slices

    def has_slice(self, one: int) -> bool:
        """Return whether all hosts of a slice are running or have completed."""
        return sum(pod.is_up for pod in self.pods_of(one)) * self.slices >= self.hosts

    def pods_of(self, one: int) -> list[Pod]:
        """Return the newest pods of a slice."""
        return [pod for pod in self.pods if not pod.is_head and pod.slice == one]

    def condition(self, kind: str) -> Condition | None:
        """Return the JobSet's condition of a kind. None: it has no such condition."""
        return next((each for each in self.conditions if each.kind == kind), None)

    @property
    def state(self) -> State:
        if not self.uid:
            return State.MISSING
        all_run = bool(self.hosts) and self._enough_run and self.heads_running >= self.heads
        any_left = any(pod.phase in ("Running", "Terminating") for pod in self.pods)
        return state_of(self.terminal, self.workload, suspended=self.suspended, all_run=all_run, any_left=any_left)


@dataclass(frozen=True)
class SliceAway:
    """A slice that does not train while the others go on."""

    slice: int
    doing: str
    """What it does now."""
    since: float | None
    """When it was lost. None: unknown."""
    cause: str
    """What its processes recorded. Empty: nothing yet."""
    restarts: int


def slices_away(job: Job) -> tuple[SliceAway, ...]:
    """Return the slices without which a running job trains, by the records and by the pods."""
    if job.fewest_slices is None or job.state is not State.RUNNING:
        return ()
    spent = job.files.goodput
    newest = spent.starts[-1].number if spent and spent.starts else None
    lasting = [each for each in (spent.absences if spent else ()) if each.until is None and each.start == newest]
    known = {each.slice: each for each in lasting}
    found: list[SliceAway] = []
    for one in range(job.slices):
        absence, pods = known.get(one), job.pods_of(one)
        ready = job.has_slice(one)
        if ready and (absence is None or all(pod.phase == "Succeeded" for pod in pods)):
            continue
        ends = [pod.ended or pod.created for pod in pods if not pod.is_up]
        since = absence.since if absence else min(ends, default=None)
        restarts = job.slice_restarts[one] if one < len(job.slice_restarts) else 0
        found.append(
            SliceAway(one, "joining" if ready else _doing(pods), since, absence.cause if absence else "", restarts)
        )
    return tuple(found)


def _doing(pods: Sequence[Pod]) -> str:
    if any(pod.waits_for and not pod.node for pod in pods):
        return "waiting for nodes"
    return "cannot start its container" if any(pod.held_up for pod in pods) else "restarting"


@dataclass(frozen=True)
class Snapshot:
    """State of a stack at one moment."""

    stack: str
    options: str
    """Options with which a command selects the stack, such as `-s dev --sandbox`."""
    cluster: str
    at: float
    engine_options: tuple[str, ...] = ()
    """Those options that select the engine, such as `--sandbox`."""
    answered: bool = True
    """Whether the cluster answered any request."""
    usd_per_hour: float | None = None
    """Price of all slices of the stack. None: unknown."""
    nodes: tuple[Node, ...] = ()
    hostless: Mapping[str, str] = field(default_factory=dict[str, str])
    """Topologies, by name, of the slices that should always be on but have no node."""
    queues: tuple[Queue, ...] = ()
    workloads: tuple[Workload, ...] = ()
    """Workloads of all jobs that could be read."""
    jobs: tuple[Job, ...] = ()
    notes: tuple[str, ...] = ()

    def up(self, *options: str) -> str:
        """Return the command line that deploys the stack. Members without access to Pulumi must ask its owner."""
        return command_line("up", self.stack, *self.engine_options, *options)


@dataclass(frozen=True)
class Summary:
    """Figures of a job, equal in all commands that show them."""

    name: str
    namespace: str
    queue: str
    kind: Kind
    state: State
    position: int | None
    """Position in its queue, from 1. None: the job is not waiting."""
    age_seconds: float | None
    """Time since it was submitted. None: the job is missing."""
    slices: int
    hosts: int
    """Number of hosts of all slices."""
    hosts_running: int
    slices_present: int | None
    """Number of slices that train, if they are lost and return one by one. None: all slices stop together."""
    slices_away: tuple[SliceAway, ...]
    restarts: int
    """Restarts of all slices together."""
    slice_restarts: int
    """Restarts of single slices."""
    max_restarts: int
    """Limit on the restarts that count."""
    run: str
    """Folder name of its current run. Empty: the first start has not opened it yet."""
    step: int
    steps: int
    loss: float | None
    tokens_per_second: float
    seconds_left: float | None
    """Time left at the pace of the last step. None: the job is not running."""
    checkpoint_step: int | None
    usd: float | None
    """Dollars spent so far in the current run. None: unknown."""
    goodput: float | None
    """Share of the run's time spent in productive steps."""

    @property
    def state_words(self) -> str:
        """State of the job, and how many slices train if some do not."""
        return f"{self.state}, {self.slices_present} of {self.slices} slices" if self.slices_away else self.state


def summary(job: Job, at: float) -> Summary:
    """Return the figures of a job. `at` is the current time."""
    training, spent = job.files.training, job.files.goodput
    away = slices_away(job)
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
        slices_present=None if job.fewest_slices is None else job.slices - len(away),
        slices_away=away,
        restarts=job.restarts,
        slice_restarts=sum(job.slice_restarts),
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
