"""Frozen values with the state of a stack at one moment. Times are in seconds since the epoch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf

from cli.deployed import JobRef
from cli.observed.files import UNREAD, Files
from infra.cluster.job_pods import Pod
from infra.cluster.job_state import Kind, State, Workload, state_of
from infra.stack.command_lines import Reader
from infra.stack.manifests import Condition
from workloads.report.training import Training
from workloads.spec import ExitCode

WHOLE_SECOND = 1.0
"""Kubernetes truncates times to whole seconds, so the actual time is up to a second later. Records have fractions."""
_CLOCKS_DIFFER_SECONDS = 2.0
"""Largest difference between the clocks of a host and the API server, which truncates times to whole seconds."""


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
    cohort_members: tuple[str, ...] = ()
    """ClusterQueues with which it shares quota, those that name the same cohort. Empty: it is in no cohort."""
    used: str = ""
    """What `multislice enforce-budget` has counted, written by `infra.cluster.queue_stop.Usage`. Empty: nothing yet."""

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
    """Warning of a component of the cluster."""

    at: float
    kind: str
    """Kind of the object of the event, such as `Pod`."""
    name: str
    reason: str
    message: str
    node: str = ""
    """Node whose kubelet reported it."""
    attempt: int | None = None
    """Number of restarts of the job before it. None: unknown."""


@dataclass(frozen=True)
class JobStatus:
    """A job of the stack."""

    ref: JobRef
    declared: bool = False
    """Whether the stack file has the job. False: it was submitted by hand."""
    kind: Kind = Kind.TRAINING
    folder: str = ""
    """Folder in the checkpoint bucket that its specification names, if it is a training job. In a foreign cluster, its
    URL."""
    existing_run: str = ""
    """What it does with an existing run: `resume` or `new`. Empty: its program decides."""
    steps: int = 0
    """Number of its last step. 0: only its program knows it."""
    uid: str = ""
    """Uid of the JobSet. Empty: the JobSet does not exist."""
    created: float = 0.0
    suspended: bool = False
    slices: int = 0
    """Number of its slices. 0: unknown, because nothing places each of its Jobs on a slice of its own."""
    hosts: int = 0
    """Number of pods on all slices when the job runs."""
    heads: int = 0
    """Number of pods that are not hosts of slices: 1 with Pathways, else 0."""
    restarts: int = 0
    """Number of attempts before the newest one."""
    restarts_of_slices: int = 0
    """Number of restarts of single slices. While the job's attempts cannot be read, each counts as one."""
    restarts_counted: int = 0
    """Restarts that count towards `max_restarts`: those by JobSet and those of processes, each of which it limits."""
    processes_counted: int = 0
    """Those of them that were restarts of processes in pods that stay."""
    max_restarts: int = 0
    terminal: str = ""
    """`Completed` or `Failed` after the job has ended, else empty."""
    deleted: float | None = None
    """Time at which its deletion began. None: it is not being deleted."""
    finalizers: tuple[str, ...] = ()
    """What its deletion waits for."""
    has_chips: bool = True
    """Whether its pods request chips, so that they run on the nodes of slices."""
    has_pods: bool = True
    """Whether its pods can be found, as those of a JobSet or a batch Job."""
    has_workloads: bool = True
    """Whether Workloads could be read, so that a job without one has none."""
    missing_queue: str = ""
    """LocalQueue that it names and that does not exist. Empty: its LocalQueue exists, or is not known."""
    conditions: tuple[Condition, ...] = ()
    workload: Workload | None = None
    position: int | None = None
    """Position in its queue, from 1. None: the job is not waiting."""
    slice_jobs: tuple[SliceJob, ...] = ()
    pods: tuple[Pod, ...] = ()
    """Newest pod of each host."""
    events: tuple[Event, ...] = ()
    """Warnings about the job, its Workload, its Jobs and its pods, newest first."""
    files: Files = UNREAD

    def with_files(self, files: Files) -> "JobStatus":
        """Return the job as its files tell it, when it is as the cluster tells it."""
        world = files.world
        if world is None:
            # No slice of an attempt has restarted, because there was none.
            alone = self.restarts_of_slices if files.knows_world else 0
            return replace(self, files=files, restarts=self.restarts - alone)
        begins, last = files.begins(self.uid), files.starts[-1] if files.starts else None
        # The pods may wait in vain for the attempt after it, and then record that.
        waited = last is not None and (last.submission, last.attempt) == (self.uid, world.number + 1)

        def attempt_at[Unknown](at: float, otherwise: Unknown) -> int | Unknown:
            return max((attempt for attempt, began in begins.items() if began <= at + WHOLE_SECOND), default=otherwise)

        return replace(
            self,
            files=files,
            restarts=world.number + waited,
            restarts_counted=self.restarts_counted + world.counted,
            processes_counted=world.counted,
            # A pod that has not ended is in the newest attempt.
            pods=tuple(replace(pod, attempt=attempt_at(pod.until or inf, pod.attempt)) for pod in self.pods),
            events=tuple(replace(event, attempt=attempt_at(event.at, event.attempt)) for event in self.events),
        )

    @property
    def used_up(self) -> bool:
        """Whether no restart that counts is left."""
        if self.files.world and self.files.world.ended == ExitCode.RESTARTS_USED_UP:
            return True
        return max(self.processes_counted, self.pods_counted) >= self.max_restarts > 0

    @property
    def pods_counted(self) -> int:
        """Number of restarts by JobSet that count."""
        return self.restarts_counted - self.processes_counted

    @property
    def running(self) -> int:
        """Number of pods of slices that are running or have completed."""
        return sum(pod.is_up and not pod.is_head for pod in self.pods)

    @property
    def heads_running(self) -> int:
        """Number of heads that are running or have completed."""
        return sum(pod.is_up and pod.is_head for pod in self.pods)

    def condition(self, kind: str) -> Condition | None:
        """Return the JobSet's condition of a kind. None: it has no such condition."""
        return next((each for each in self.conditions if each.kind == kind), None)

    @property
    def state(self) -> State:
        if not self.uid:
            return State.MISSING
        all_run = bool(self.hosts) and self.running >= self.hosts and self.heads_running >= self.heads
        if not self.has_pods and self.workload:
            ready = self.workload.condition("PodsReady")
            all_run = ready is None or ready.holds
        any_left = any(pod.phase in ("Running", "Terminating") for pod in self.pods)
        return state_of(self.terminal, self.workload, suspended=self.suspended, all_run=all_run, any_left=any_left)

    @property
    def run(self) -> str | None:
        """Folder name of its run if it begins one of its own. None: it continues the current run, or is missing."""
        return (self.uid or None) if self.existing_run == "new" else None

    @property
    def training(self) -> Training:
        """Progress of the present attempt, for all commands. Before it has restored its state, it has no figures."""
        found = self.files.newest
        present = found if self._is_present(found) else found.before_restore()
        return replace(present, steps=self.steps or present.steps)

    @property
    def progress(self) -> str:
        """The same in words, such as `step 32 of 100` or `restoring, last save at step 25`. Empty: unknown."""
        # Without a run, it is unknown why its files cannot be read.
        if self.kind is not Kind.TRAINING or (self.files.notes and not self.files.newest.run_id):
            return ""
        return self.training.words(running=self.state is State.RUNNING)

    def _is_present(self, found: Training) -> bool:
        """Return whether the attempt that left these records is the one that runs, or that ended the job."""
        if found.submission != self.uid or found.restarts < self.restarts:
            return False
        if self.state in (State.COMPLETED, State.FAILED):
            return True
        # Pods that stay may wait for the next attempt, or go on without those of a slice that is missing.
        stays = self.files.world is not None
        going_on = (State.RUNNING, State.STARTING) if stays else (State.RUNNING,)
        # A job that was evicted and admitted again has new pods in the same attempt.
        created = min((pod.created for pod in self.pods), default=0.0)
        return (
            self.state in going_on and not (stays and found.failed) and found.began + _CLOCKS_DIFFER_SECONDS >= created
        )


@dataclass(frozen=True)
class Snapshot:
    """State of a stack, or of a namespace of a foreign cluster, at one moment."""

    stack: str
    """Name of the stack. Empty: the cluster is foreign."""
    options: str
    """Options with which a command selects the stack, such as `-s dev --sandbox`."""
    cluster: str
    at: float
    engine_options: tuple[str, ...] = ()
    """Those options that select the engine, such as `--sandbox`."""
    kubectl: str = "kubectl"
    """Beginning of kubectl's command lines, which selects the cluster."""
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
    jobs: tuple[JobStatus, ...] = ()
    notes: tuple[str, ...] = ()
    local_queues: tuple[str, ...] = ()
    """LocalQueues of the namespace of a foreign cluster."""
    place: str = ""
    """Where the jobs are, in words: `stack dev` or `namespace default`."""

    @property
    def reader(self) -> Reader:
        """Return the person who reads this, for advice."""
        return Reader(self.stack, self.options, self.engine_options, self.kubectl)

    def word_for(self, job: JobStatus) -> str:
        """Return the word that selects a job in a command: its name, after its namespace if another team has one of
        that name."""
        same = [other for other in self.jobs if other.ref.name == job.ref.name]
        return job.ref.full_name if len(same) > 1 else job.ref.name


@dataclass(frozen=True)
class Summary:
    """Figures of a job, equal in all commands that show them."""

    name: str
    namespace: str
    queue: str
    object: str
    """Kind of its object, such as `JobSet`."""
    kind: Kind
    state: State
    position: int | None
    """Position in its queue, from 1. None: the job is not waiting."""
    age_seconds: float | None
    """Time since it was submitted. None: the job is missing."""
    slices: int
    hosts: int
    hosts_running: int
    restarts: int
    max_restarts: int
    """Limit on the restarts that count."""
    run: str
    """Folder name of its current run. Empty: the first start has not opened it yet."""
    attempt: int | None
    """Number of the attempt that step, loss and pace are of, from 1. None: the present attempt has no figures yet."""
    step: int | None
    """Number of steps done in that attempt. None: it has not restored its state yet, or the job does not run."""
    steps: int
    progress: str
    loss: float | None
    tokens_per_second: float
    seconds_left: float | None
    """Time left at the pace of the last step. None: the job is not running, or the attempt has not ended a step."""
    checkpoint_step: int | None
    """Step of the run's last complete save."""
    usd: float | None
    """Dollars spent so far in the current run. None: unknown."""
    goodput: float | None
    """Share of the run's time spent in productive steps."""


def summary(job: JobStatus, at: float) -> Summary:
    """Return the figures of a job. `at` is the current time."""
    training, spent = job.training, job.files.goodput
    paced = job.state is State.RUNNING and training.last_step_at is not None
    return Summary(
        name=job.ref.name,
        namespace=job.ref.namespace,
        queue=job.ref.queue,
        object=job.ref.kind,
        kind=job.kind,
        state=job.state,
        position=job.position,
        age_seconds=at - job.created if job.uid else None,
        slices=job.slices,
        hosts=job.hosts,
        hosts_running=sum(pod.phase == "Running" and not pod.is_head for pod in job.pods),
        restarts=job.restarts,
        max_restarts=job.max_restarts,
        run=training.run_id,
        attempt=training.attempt,
        step=training.step,
        steps=training.steps,
        progress=job.progress,
        loss=training.loss,
        tokens_per_second=training.tokens_per_second,
        seconds_left=training.seconds_left() if paced else None,
        checkpoint_step=training.checkpoint_step,
        usd=job.files.usd,
        goodput=spent.productive if spent else None,
    )
