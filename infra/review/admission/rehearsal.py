"""Simulates the submission of a workload: whether it is admitted, and which workloads it preempts."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Literal

from infra.review.admission import manifests
from infra.review.admission.manifests import Object
from infra.review.admission.preemption import Reason, Target
from infra.review.admission.scheduler import Assignment, Attempt, Mode, Scheduler, assign
from infra.review.admission.situation import Queue, Situation, Snapshot, Workload, chips_of
from infra.stack import jobset, kueue
from infra.stack.names import team_of
from infra.stack.pods import slice_binding
from infra.stack.settings.jobs import JobSettings
from infra.stack.settings.stack import Settings
from infra.stack.submission import submission
from workloads.spec.base import Spec

Outcome = Literal["runs", "admitted", "preempts", "waits", "never", "paused"]
"""`runs`: the job has its quota already, and the plan keeps it. `paused`: the job is kept out of its queue. The rest of
the verdict describes what would happen otherwise."""
_NAMED = 5
"""Maximum number of workloads to name in one line."""
_EMPTY_CLUSTER = "simulated for an empty cluster"
_REASONS: dict[Reason, str] = {
    "InClusterQueue": "less urgent in the same queue",
    "InCohortReclamation": "on chips that its queue borrowed",
    "InCohortReclaimWhileBorrowing": "less urgent, on chips that its queue borrowed",
    "InCohortFairSharing": "its queue has the larger share of what is borrowed",
}


class Loan(Spec):
    """Borrowed chips that the workload needs."""

    flavor: str
    chips: int
    idle: dict[str, int]
    """Idle chips that are lent, by queue. It is unknown whose chips are taken, and others may borrow them too."""

    def __str__(self) -> str:
        return f"{self.chips} idle chips of {self.flavor} from {' or '.join(self.idle)}"


class Preempted(Spec):
    """A workload that is preempted and then waits again."""

    workload: str
    queue: str
    priority: int
    chips: int
    reason: Reason
    runs_again: bool
    """Whether it gets other chips at once, instead of waiting in its queue."""

    def __str__(self) -> str:
        return f"{self.workload} ({self.chips} chips, priority {self.priority}, {_REASONS[self.reason]})"


class Holder(Spec):
    """A workload that this one cannot preempt, with chips that this one needs."""

    workload: str
    queue: str
    priority: int
    chips: dict[str, int]
    """Chips by flavor."""

    def __str__(self) -> str:
        return f"{self.workload} ({sum(self.chips.values())} chips, priority {self.priority})"


class Shortage(Spec):
    """Why a workload does not get one flavor."""

    flavor: str
    needed: int
    available: int
    """Chips that the queue can use now."""
    most: int
    """Maximum number of chips that it can ever use: its own and all that others lend it."""

    def __str__(self) -> str:
        if self.needed > self.most:
            return f"{self.flavor}: needs {self.needed} chips, and the queue can never use more than {self.most}"
        return f"{self.flavor}: needs {self.needed} chips, {self.available} of at most {self.most} are free"


class Verdict(Spec):
    """Kueue's decision on a workload, as far as it depends on quota."""

    workload: str
    queue: str
    priority: int
    chips: int
    outcome: Outcome
    flavors: tuple[str, ...]
    """Flavors that it gets, by pod set; if it preempts, those in which it does."""
    borrowed: tuple[Loan, ...]
    preempted: tuple[Preempted, ...]
    admitted_in_the_end: bool
    """Whether it runs in the end. Others may take the chips that a preemption frees."""
    preempts_in_circles: bool
    """Whether workloads of these queues preempt each other in turn without end. In a cluster this may stop by chance,
    because workloads that are preempted together end one by one."""
    shortages: tuple[Shortage, ...]
    """Reasons why it is not admitted at once, by flavor."""
    holders: tuple[Holder, ...]
    """Workloads that hold the chips that it waits for. Which of them ends next is unknown."""
    ahead: tuple[str, ...]
    """If it waits, the workloads of its queue that are more urgent or older. They do not block smaller ones: Kueue
    admits whatever fits."""
    started_first: tuple[str, ...]
    """Workloads that wait now and are admitted before it, because of the plan's quotas."""
    started_later: tuple[str, ...] = ()
    """Workloads that wait now and get chips of those that it preempts."""
    stopped: bool
    """Whether its queue admits nothing, whatever is free."""
    checked_flavors: tuple[str, ...]
    """Its flavors whose hosts must be created first: it has its quota, but keeps waiting."""
    assumed: str | None = None
    """What the simulation assumes about other workloads. `None` if all of them are known."""
    unknown: tuple[str, ...]
    """Conditions other than quota that are not simulated."""

    @property
    def answer(self) -> str:
        """Return the outcome and its reason in a few words, without the workload's name."""
        match self.outcome:
            case "runs":
                return "has its quota already" if self.checked_flavors else "runs already"
            case "admitted":
                admitted = "has its quota at once, waits for hosts" if self.checked_flavors else "admitted at once"
                return ", ".join([admitted, *(f"borrows {loan}" for loan in self.borrowed)])
            case "preempts":
                names = _list_names("preempts", (each.workload for each in self.preempted))
                return ", ".join([*names, "admitted afterwards" if self.admitted_in_the_end else "may still wait"])
            case "waits":
                reason = "on hold" if self.stopped else "short of chips"
                holders = _list_names("held by", (each.workload for each in self.holders))
                return ", ".join([f"waits because queue {self.queue} is {reason}", *holders])
            case "never":
                return "; ".join(["never admitted", *dict.fromkeys(map(str, self.shortages))])
            case "paused":
                return "paused, holds no chips"

    @property
    def lines(self) -> tuple[str, ...]:
        """Return the verdict as text. The first line is the outcome."""
        if self.outcome == "paused":
            return (self._headline(),)
        endless = "workloads of these queues preempt each other in turn, without end"
        details = [
            *(f"borrows {loan}" for loan in self.borrowed),
            *(f"preempts {preempted}" for preempted in self.preempted),
            *dict.fromkeys(map(str, self.shortages)),
            *_list_names("held by", map(str, self.holders)),
            *_list_names("ahead in the queue:", self.ahead),
            *_list_names("started before it:", self.started_first),
            *(f"has quota of {flavor}, then waits until its hosts have come" for flavor in self.checked_flavors),
            *([endless] if self.preempts_in_circles else []),
        ]
        return (self._headline(), *details)

    def _headline(self) -> str:
        job = f"{self.workload} ({self.chips} chips, priority {self.priority})"
        flavors = ", ".join(dict.fromkeys(self.flavors))
        match self.outcome:
            case "runs":
                return f"{job} {self.answer}, on {flavors}"
            case "admitted":
                if self.checked_flavors:
                    return f"{job} has its quota at once, on {flavors}, and waits for hosts"
                return f"{job} is admitted at once, on {flavors}"
            case "preempts":
                after = f"is admitted on {flavors}" if self.admitted_in_the_end else "others may still be faster"
                return f"{job} preempts {len(self.preempted)} running, then {after}"
            case "waits":
                return f"{job} waits: queue {self.queue} is {'on hold' if self.stopped else 'short of chips'}"
            case "never":
                return f"{job} is never admitted by queue {self.queue}"
            case "paused":
                return f"{job} is paused and holds no chips"


def _list_names(what: str, names: Iterable[str]) -> list[str]:
    found = list(names)
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return [f"{what} {', '.join(found[:_NAMED])}{more}"] if found else []


_MAX_EVENTS_EACH = 8
"""Maximum number of events per workload. With more events, workloads preempt each other in turn without end."""


def rehearse(situation: Situation, workload: Workload) -> Verdict:
    """Return Kueue's first decision on a workload that is submitted now, after all waiting ones have been tried.

    Raise ValueError if the situation does not have its queue.
    """
    if workload.queue not in {queue.name for queue in situation.queues}:
        names = ", ".join(queue.name for queue in situation.queues)
        raise ValueError(f"expected one of the queues {names} for {workload.name}, got {workload.queue!r}")
    scheduler = Scheduler(situation)
    most = _MAX_EVENTS_EACH * (len(situation.workloads) + 1)
    earlier = list(islice(scheduler.run(), most))
    before, waiting = scheduler.snapshot.copy(), scheduler.waiting(workload.queue)
    scheduler.submit(workload)
    later = list(islice(scheduler.run(), most))
    targets = {target.workload.name for event in later for target in event.targets if event.step == "preempts"}
    started = (event.workload.name for event in later if event.step == "admitted")
    own = (event for event in later if event.workload.name == workload.name and event.step != "skipped")
    decided = next(own, None)
    return _Finding(
        before=before,
        assignment=decided.assignment if decided else assign(before, workload, (0,) * len(workload.pod_sets)),
        step=decided.step if decided else "waits",
        targets=decided.targets if decided else (),
        in_the_end=frozenset(name for queue in situation.queues for name in scheduler.snapshot.running(queue.name)),
        preempts_in_circles=most in (len(earlier), len(later)),
        waiting=waiting,
        started_first=tuple(event.workload.name for event in earlier if event.step == "admitted"),
        started_later=tuple(name for name in started if name not in {workload.name, *targets}),
    ).verdict()


@dataclass(frozen=True)
class _Finding:
    before: Snapshot
    assignment: Assignment
    step: str
    targets: tuple[Target, ...]
    in_the_end: frozenset[str]
    """Names of the workloads that run when nothing changes any more."""
    preempts_in_circles: bool
    waiting: list[Workload]
    started_first: tuple[str, ...]
    started_later: tuple[str, ...]

    @property
    def workload(self) -> Workload:
        return self.assignment.workload

    @property
    def queue(self) -> Queue:
        return self.before.queue(self.workload.queue)

    def verdict(self) -> Verdict:
        outcome = self._outcome()
        gets, waits = outcome in ("admitted", "preempts"), outcome == "waits"
        return Verdict(
            workload=self.workload.name,
            queue=self.queue.name,
            priority=self.workload.priority,
            chips=self.workload.chips,
            outcome=outcome,
            flavors=self.assignment.flavors if gets else (),
            borrowed=tuple(self._loans()) if gets else (),
            preempted=tuple(map(self._preempted, self.targets)) if outcome == "preempts" else (),
            admitted_in_the_end=self.workload.name in self.in_the_end,
            preempts_in_circles=self.preempts_in_circles,
            shortages=() if outcome == "admitted" else tuple(map(_shortage, self._failed())),
            holders=tuple(self._holders()) if waits else (),
            ahead=tuple(other.name for other in self.waiting if self._before_me(other)) if waits else (),
            started_first=self.started_first,
            started_later=self.started_later,
            stopped=self.queue.stopped,
            checked_flavors=tuple(sorted(self.queue.checked_flavors & set(self.assignment.flavors))) if gets else (),
            unknown=(),
        )

    def _outcome(self) -> Outcome:
        if self.step in ("admitted", "preempts"):
            return "admitted" if self.step == "admitted" else "preempts"
        # It waits if any choice of flavors would fit if no other workload had chips.
        pod_sets, offered = self.workload.pod_sets, [quota.flavor for quota in self.queue.flavors]
        usable = ([name for name in offered if pods.flavors is None or name in pods.flavors] for pods in pod_sets)
        possible = any(
            all(chips <= self.before.ledger.potential(self.queue.name, flavor) for flavor, chips in needed.items())
            for needed in (chips_of(pod_sets, flavors) for flavors in product(*usable))
        )
        return "waits" if possible else "never"

    def _preempted(self, target: Target) -> Preempted:
        other = target.workload
        return Preempted(
            workload=other.name,
            queue=other.queue,
            priority=other.priority,
            chips=other.chips,
            reason=target.reason,
            runs_again=other.name in self.in_the_end,
        )

    def _failed(self) -> list[Attempt]:
        attempts = (attempt for choice in self.assignment.choices for attempt in choice.attempts)
        return [attempt for attempt in attempts if attempt.mode != Mode.FIT]

    def _loans(self) -> Iterator[Loan]:
        ledger, queue = self.before.ledger, self.queue.name
        with ledger.without(target.workload for target in self.targets):
            for flavor, chips in self.assignment.chips.items():
                borrowed = min(chips, ledger.usage(queue, flavor) + chips - ledger.nominal(queue, flavor))
                idle = {other.name: ledger.idle(other.name, flavor) for other in ledger.neighbours(queue)}
                if borrowed > 0:
                    lenders = {name: count for name, count in idle.items() if count}
                    yield Loan(flavor=flavor, chips=borrowed, idle=lenders)

    def _holders(self) -> Iterator[Holder]:
        """Yield the workloads with chips of flavors that would fit if they were free, the largest first."""
        wanted = {attempt.flavor for attempt in self._failed() if attempt.needed <= attempt.potential}
        queues = [self.queue, *self.before.ledger.neighbours(self.queue.name)]
        running = (workload for queue in queues for workload in self.before.running(queue.name).values())
        for other in sorted(running, key=lambda other: -other.chips):
            chips = {flavor: count for flavor, count in other.usage.items() if flavor in wanted}
            if chips:
                yield Holder(workload=other.name, queue=other.queue, priority=other.priority, chips=chips)

    def _before_me(self, other: Workload) -> bool:
        return (-other.priority, other.queued_at) < (-self.workload.priority, self.workload.queued_at)


def _shortage(attempt: Attempt) -> Shortage:
    return Shortage(flavor=attempt.flavor, needed=attempt.needed, available=attempt.available, most=attempt.potential)


_NO_IMAGE = ""
_LAST_SECONDS = 1e12
"""A time after all existing workloads, in seconds since 1970."""


def rehearse_stack(settings: Settings, live: Sequence[Object] | None, kept: Collection[str] = ()) -> dict[str, Verdict]:
    """Return the verdict on each of the stack's jobs, by name, if they are submitted to the plan's queues one by one.

    `live` has the cluster's Workloads, which keep running or waiting. `None`: no cluster was asked, so nothing runs.
    `kept` has the names of the jobs whose JobSets the plan keeps. Default: none.
    """
    found = situation(settings, live or (), kept)
    verdicts: dict[str, Verdict] = {}
    for job, newcomer in zip(settings.jobs.values(), newcomers(settings), strict=True):
        known = {"assumed": _EMPTY_CLUSTER if live is None else None, "unknown": tuple(_unknown(settings, job))}
        present = next((each for each in found.workloads if each.name == newcomer.name), newcomer)
        others = tuple(each for each in found.workloads if each is not present)
        verdict = _goes_on(found, present) or rehearse(
            found.model_copy(update={"workloads": others}), present.admitted_by(None)
        )
        verdicts[job.name] = verdict.model_copy(update=known | ({"outcome": "paused"} if job.paused else {}))
        if not job.paused:
            found = found.model_copy(update={"workloads": (*others, present)})
    return verdicts


def _goes_on(situation: Situation, workload: Workload) -> Verdict | None:
    """Return the verdict on a workload that has its quota and keeps it; `None` if it needs a new admission."""
    queue = next(queue for queue in situation.queues if queue.name == workload.queue)
    if workload.admission is None or workload.admission.evicted or queue.stop_policy == "HoldAndDrain":
        return None
    flavors = workload.admission.flavors
    return Verdict(
        workload=workload.name,
        queue=queue.name,
        priority=workload.priority,
        chips=workload.chips,
        outcome="runs",
        flavors=flavors,
        borrowed=(),
        preempted=(),
        admitted_in_the_end=True,
        preempts_in_circles=False,
        shortages=(),
        holders=(),
        ahead=(),
        started_first=(),
        stopped=queue.stopped,
        checked_flavors=tuple(sorted(queue.checked_flavors & set(flavors))),
        unknown=(),
    )


def situation(settings: Settings, live: Iterable[Object], kept: Collection[str] = ()) -> Situation:
    """Return the plan's queues with the cluster's workloads, without those of the stack's jobs, which are replaced.

    Workloads of the jobs in `kept` stay, with the plan's priority, unless the plan pauses them.
    """
    placement, planned = settings.scheduling.placement, dict(zip(settings.jobs, newcomers(settings), strict=True))
    rendered = (kueue.cluster_queue(name, team, settings.slices, placement) for name, team in settings.teams.items())
    of_teams = [(team, team) for team in settings.teams]
    of_teams += [(job.queue, job.team) for job in settings.jobs.values()]
    local = {(settings.teams[team].namespace, queue): team for queue, team in of_teams}
    replaced = {planned[name].name for name, job in settings.jobs.items() if name not in kept or job.paused}
    priorities = {workload.name: workload.priority for workload in planned.values()}
    found = manifests.workloads(live, local, _flavors(settings))
    return Situation(
        queues=tuple(map(manifests.queue, rendered)),
        workloads=tuple(
            workload.model_copy(update={"priority": priorities.get(workload.name, workload.priority)})
            for workload in found
            if workload.name not in replaced
        ),
        fair_sharing=settings.scheduling.fair_sharing,
    )


def without_deleted(settings: Settings, live: Iterable[Object]) -> list[Object]:
    """Return the Workloads without those of the stack's jobs that the plan deletes."""
    teams = {(team.namespace, name) for name, team in settings.teams.items()}
    planned = {(settings.team_of(job).namespace, job.queue) for job in settings.jobs.values()}

    def is_deleted(workload: Object) -> bool:
        namespace, _, job = manifests.name_of(workload).partition("/")
        queue = workload["spec"].get("queueName", "")
        team = team_of(queue)
        # Only the stack's jobs have LocalQueues of their own.
        return (namespace, team) in teams and queue == f"{team}.{job}" and (namespace, queue) not in planned

    return [each for each in live if not is_deleted(each)]


def newcomers(settings: Settings) -> list[Workload]:
    """Return the jobs as the last workloads that are submitted, in their order."""
    return [
        manifests.jobset_workload(
            jobset.render(submission(settings, job, _NO_IMAGE)),
            job.team,
            kueue.PRIORITIES[job.priority],
            _flavors(settings),
            now=_LAST_SECONDS + index,
        )
        for index, job in enumerate(settings.jobs.values())
    ]


def _flavors(settings: Settings) -> list[Object]:
    placement = settings.scheduling.placement
    return [kueue.resource_flavor(name, group, placement) for name, group in settings.slices.items()]


def _unknown(settings: Settings, job: JobSettings) -> Iterable[str]:
    groups = settings.groups_of(job)
    if slice_binding(groups.values(), settings.scheduling.placement) == "topology-aware":
        yield "topology-aware scheduling also counts free hosts: with one too few in a slice it waits"
    for name, group in groups.items():
        if group.capacity.requested_by_pods:
            yield f"{name} is flex-start: an admitted job's pods wait until Google has the hosts of its slices"
