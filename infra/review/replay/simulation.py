"""Simulates a trace: jobs are submitted, admitted, preempted, restarted and end. Times are hours since its begin.

A job holds its quota from its admission to its end, also while it waits for hosts. Hosts are counted per flavor: a
slice that fails is repaired, and its job goes on with a spare or idle slice, or waits for one. Whatever ran since the
last save is lost at each preemption, failure or return of requested chips.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from math import floor, inf
from random import Random
from typing import Literal

from infra.review.admission.scheduler import Event, Scheduler
from infra.review.admission.situation import PodSet, Situation, Workload
from infra.review.replay.fleet import Fleet, Group, Place
from infra.review.replay.trace import Job, Trace
from infra.stack.names import HOURS_PER_DAY

_MAX_STARTS = 8
"""Maximum number of admissions of a job at one moment. With more, workloads preempt each other in turn."""
Use = Literal["useful", "lost", "restarting"]
"""What a job does with its hosts."""


@dataclass(frozen=True)
class Conditions:
    """What the simulation assumes besides quotas."""

    seed: int
    failures_per_day: float
    """Failures of a slice per day."""
    repair_hours: float
    spares: int
    """Slices of each group on which no quota counts. They replace slices under repair."""
    restart_hours: float
    """Hours without progress after each interruption."""
    lead_hours: float
    """Hours until requested chips of flex-start or queued capacity arrive."""
    maintenance_days: float | None
    """Days between two maintenances of a slice. `None` for no maintenance."""
    maintenance_hours: float


@dataclass
class Run:
    """A job and what has happened to it."""

    job: Job
    place: Place
    workload: Workload
    hours_left: float
    admissible: bool
    """Whether its queue could ever have its chips of one of its flavors."""
    waits_since: float | None
    """Begin of the current wait: its submission or a preemption. `None` while it has started or keeps its quota."""
    waited: float = 0.0
    """Hours of earlier waits."""
    first_start: float | None = None
    finished: float | None = None
    preemptions: int = 0
    interruptions: int = 0
    """Failures and maintenance of its slices, and returns of requested chips."""
    lost_chip_hours: float = 0.0
    flavor: str = ""
    """Flavor of its quota; empty while it waits for quota."""
    hosts: int = 0
    """Chips of its hosts that work."""
    since: float | None = None
    """Begin of the current attempt. `None` while it does not run."""
    restarts: bool = False
    """Whether the next attempt begins with a restart."""
    attempt: int = 0
    """Events of earlier attempts are void."""

    @property
    def chips(self) -> int:
        return self.place.slice_chips * self.job.slices


@dataclass
class _Pool:
    group: Group
    free: int
    waiting: list[Run] = field(default_factory=list[Run])
    """Runs with quota that lack hosts, in the order in which they get them."""
    running: dict[str, Run] = field(default_factory=dict[str, Run])


@dataclass
class Usage:
    """Chip-hours of one flavor."""

    by_use: dict[Use, float] = field(default_factory=dict[Use, float])
    intervals: list[tuple[str, float, float, int]] = field(default_factory=list[tuple[str, float, float, int]])
    """Team, begin, end and chips of each time in which a job had its hosts."""
    repaired: float = 0.0
    """Chip-hours of slices under repair or maintenance."""


@dataclass(frozen=True)
class Replayed:
    """What happened in a replay."""

    trace: Trace
    fleet: Fleet
    conditions: Conditions
    runs: Sequence[Run]
    usage: Mapping[str, Usage]
    """Chip-hours by flavor."""
    circles: frozenset[str]
    """Jobs that preempted each other in turn at one moment."""


def replay(trace: Trace, fleet: Fleet, conditions: Conditions, places: Sequence[Place]) -> Replayed:
    """Return what happens to the jobs of a trace; `places` has one for each of them."""
    simulation = _Simulation(trace, fleet, conditions, places)
    simulation.run()
    return Replayed(trace, fleet, conditions, simulation.runs, simulation.usage, frozenset(simulation.circles))


class _Simulation:
    def __init__(self, trace: Trace, fleet: Fleet, conditions: Conditions, places: Sequence[Place]) -> None:
        self.now, self._end, self._conditions = 0.0, trace.hours, conditions
        pods: dict[tuple[int, frozenset[str]], tuple[PodSet, ...]] = {}
        self.usage = {flavor: Usage() for flavor in fleet.groups}
        self.circles = set[str]()
        self._scheduler = Scheduler(Situation(queues=fleet.queues, workloads=(), fair_sharing=fleet.fair_sharing))
        most = self._scheduler.snapshot.ledger.potential
        self.runs = [_run(job, place, pods, most) for job, place in zip(trace.jobs, places, strict=True)]
        self._by_name = {run.job.name: run for run in self.runs}
        self._pools = {
            flavor: _Pool(group, group.chips + conditions.spares * group.slice_chips)
            for flavor, group in fleet.groups.items()
        }
        self._turns = count()
        self._events: list[tuple[float, int, str, Run | str, float]] = []
        """Time, turn, kind, run or flavor, and a number: the attempt of a run, or what an outage needs."""
        for run in self.runs:
            self._at(run.job.submitted, "submit", run)
        for flavor, pool in self._pools.items():
            for outage in _outages(pool.group, flavor, conditions, self._end):
                self._at(*outage)

    def _at(self, time: float, kind: str, about: Run | str, number: float = 0) -> None:
        if time <= self._end:
            heappush(self._events, (time, next(self._turns), kind, about, number))

    def run(self) -> None:
        """Go through all events up to the end of the trace."""
        while self._events:
            self.now = self._events[0][0]
            decides = False
            while self._events and self._events[0][0] == self.now:
                _, _, kind, about, number = heappop(self._events)
                decides |= self._handle(kind, about, number)
            if decides:
                self._schedule()
        self.now = self._end
        for run in self.runs:
            if run.since is not None:
                self._stop(run, ended=True)
            self._end_wait(run)

    def _handle(self, kind: str, about: Run | str, number: float) -> bool:
        """Process an event. Return whether the scheduler has something to decide."""
        if isinstance(about, str):
            if kind == "repaired":
                self._free(about, int(number))
            else:
                self._break(about, number, kind)
            return False
        if kind == "submit":
            self._scheduler.submit(about.workload)
            return True
        if about.attempt != number:
            return False
        if kind == "arrive":
            self._begin(about)
        elif kind == "expire":
            self._interrupt(about)
            self._at(self.now + self._conditions.lead_hours, "arrive", about, about.attempt)
        elif kind == "end":
            self._stop(about, ended=True)
            about.finished = self.now
            self._scheduler.finish(about.place.queue, about.job.name)
            self._leave(about)
            return True
        return False

    def _schedule(self) -> None:
        admitted: dict[str, int] = {}
        for event in self._scheduler.run():
            name = event.workload.name
            if event.step == "admitted":
                admitted[name] = admitted.get(name, 0) + 1
                self._admit(self._by_name[name], event)
                if admitted[name] > _MAX_STARTS:
                    self.circles |= {each for each, times in admitted.items() if times > 1}
                    return
            elif event.step == "preempts":
                for target in event.targets:
                    self._preempt(self._by_name[target.workload.name])

    def _admit(self, run: Run, event: Event) -> None:
        run.attempt += 1
        (run.flavor,) = event.assignment.flavors
        pool = self._pools[run.flavor]
        if pool.group.on_request:
            self._at(self.now + self._conditions.lead_hours, "arrive", run, run.attempt)
        else:
            pool.waiting.append(run)
            self._give_hosts(pool)

    def _preempt(self, run: Run) -> None:
        if not run.flavor:
            return
        if run.since is not None:
            self._stop(run, ended=False)
            run.restarts = True
        run.preemptions += 1
        if run.waits_since is None:
            run.waits_since = self.now
        self._leave(run)

    def _leave(self, run: Run) -> None:
        run.attempt += 1
        pool = self._pools[run.flavor]
        if run in pool.waiting:
            pool.waiting.remove(run)
        chips, run.hosts = run.hosts, 0
        flavor, run.flavor = run.flavor, ""
        if not pool.group.on_request:
            self._free(flavor, chips)

    def _free(self, flavor: str, chips: int) -> None:
        pool = self._pools[flavor]
        pool.free += chips
        self._give_hosts(pool)

    def _give_hosts(self, pool: _Pool) -> None:
        """Start the runs that have waited longest, as far as there are hosts."""
        while pool.waiting and pool.waiting[0].chips - pool.waiting[0].hosts <= pool.free:
            run = pool.waiting.pop(0)
            pool.free -= run.chips - run.hosts
            self._begin(run)

    def _begin(self, run: Run) -> None:
        run.since, run.hosts, run.attempt = self.now, run.chips, run.attempt + 1
        self._end_wait(run)
        if run.first_start is None:
            run.first_start = self.now
        pool = self._pools[run.flavor]
        pool.running[run.job.name] = run
        end = self._overhead(run) + run.hours_left
        if pool.group.run_hours is not None and pool.group.run_hours < end:
            self._at(self.now + pool.group.run_hours, "expire", run, run.attempt)
        else:
            self._at(self.now + end, "end", run, run.attempt)

    def _end_wait(self, run: Run) -> None:
        if run.waits_since is not None:
            run.waited += self.now - run.waits_since
            run.waits_since = None

    def _overhead(self, run: Run) -> float:
        return self._conditions.restart_hours if run.restarts else 0.0

    def _stop(self, run: Run, *, ended: bool) -> None:
        """End an attempt, and count its hours. Without `ended`, it goes back to its last save."""
        assert run.since is not None, "only a run that runs is stopped"
        usage, worked = self.usage[run.flavor], self.now - run.since
        restarting = min(worked, self._overhead(run))
        progress = worked - restarting
        kept = progress if ended else _saved(progress, run.job.save_hours)
        hours: dict[Use, float] = {"restarting": restarting, "useful": kept, "lost": progress - kept}
        for use, spent in hours.items():
            usage.by_use[use] = usage.by_use.get(use, 0.0) + spent * run.chips
        usage.intervals.append((run.job.team, run.since, self.now, run.chips))
        run.lost_chip_hours += (progress - kept) * run.chips
        run.hours_left -= kept
        run.since = None
        del self._pools[run.flavor].running[run.job.name]

    def _interrupt(self, run: Run) -> None:
        self._stop(run, ended=False)
        run.restarts, run.attempt = True, run.attempt + 1
        run.interruptions += 1

    def _break(self, flavor: str, place: float, kind: str) -> None:
        """Take a slice from the pool. `place` says which one, from 0 to 1 in the order of the rows of running jobs."""
        pool, conditions = self._pools[flavor], self._conditions
        hours = conditions.repair_hours if kind == "fails" else conditions.maintenance_hours
        chips = place * (pool.group.chips + conditions.spares * pool.group.slice_chips)
        for run in sorted(pool.running.values(), key=lambda run: run.job.row):
            chips -= run.chips
            if chips < 0:
                # A flavor of any topology counts outages for each host, but a slice has only one for all its hosts.
                if (chips + run.chips) % run.place.slice_chips < pool.group.slice_chips:
                    self._lose_slice(run, pool, hours)
                return
        if not pool.group.on_request and pool.free >= pool.group.slice_chips and chips < pool.free:
            pool.free -= pool.group.slice_chips
            self._repair(flavor, pool.group.slice_chips, hours)

    def _lose_slice(self, run: Run, pool: _Pool, hours: float) -> None:
        self._interrupt(run)
        if pool.group.on_request:
            self._at(self.now + self._conditions.lead_hours, "arrive", run, run.attempt)
            return
        run.hosts -= run.place.slice_chips
        self._repair(run.flavor, run.place.slice_chips, hours)
        # It already has its other slices, so it comes first.
        pool.waiting.insert(0, run)
        self._give_hosts(pool)

    def _repair(self, flavor: str, chips: int, hours: float) -> None:
        self.usage[flavor].repaired += chips * min(hours, self._end - self.now)
        self._at(self.now + hours, "repaired", flavor, chips)


def _run(
    job: Job,
    place: Place,
    pods: dict[tuple[int, frozenset[str]], tuple[PodSet, ...]],
    most: Callable[[str, str], int],
) -> Run:
    """Return a job that waits. `most`: the chips of a flavor that a queue could have."""
    chips = place.slice_chips * job.slices
    # Equal pod sets are one object, because the scheduler compares them often.
    same = (PodSet(name="slices", chips=chips, flavors=place.flavors),)
    workload = Workload(
        name=job.name,
        uid=f"{job.row:09}",
        queue=place.queue,
        priority=job.priority,
        queued_at=job.submitted,
        pod_sets=pods.setdefault((chips, place.flavors), same),
        admission=None,
    )
    admissible = any(chips <= most(place.queue, flavor) for flavor in place.flavors)
    return Run(job, place, workload, job.hours, admissible, job.submitted)


def _saved(progress: float, every: float | None) -> float:
    """Return the hours up to the last save; a job without saves keeps nothing."""
    return floor(progress / every + 1e-9) * every if every else 0.0


def _outages(group: Group, flavor: str, conditions: Conditions, end: float) -> Iterator[tuple[float, str, str, float]]:
    """Yield time, kind, flavor and place of each failure and maintenance. They do not depend on the queues."""
    slices = group.chips // group.slice_chips + conditions.spares
    yearly = {"fails": conditions.failures_per_day, "maintained": 1 / (conditions.maintenance_days or inf)}
    for kind, per_day in yearly.items():
        random, time = Random(f"{conditions.seed}/{kind}/{group.name}"), 0.0
        per_hour = slices * per_day / HOURS_PER_DAY
        if not per_hour:
            continue
        for turn in count():
            time += random.expovariate(per_hour) if kind == "fails" else 1 / per_hour
            if time > end:
                break
            # Maintenance takes one slice after another.
            yield time, kind, flavor, random.random() if kind == "fails" else (turn % slices + 0.5) / slices
