"""Scheduling cycles: in which order the queues' heads are looked at, and what becomes of each.

Follows `pkg/scheduler/scheduler.go` and `pkg/cache/queue` of Kueue for its default queueing, best
effort: in each cycle every queue puts forward the first of its waiting workloads; what cannot be
helped is set aside until chips come free in the cohort.

Preempted workloads keep their chips until all others that wait have been looked at, then all are
gone at once. In a cluster they go one by one as their pods end, and a head of another queue may be
faster.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from infra.admission.assignment import Assignment, Mode, assign, targets
from infra.admission.preemption import Target
from infra.admission.situation import Admission, Chips, PodSet, Share, Situation, Snapshot, Workload

Step = Literal["admitted", "preempts", "pending", "waits", "skipped"]
"""`pending`: it waits until those that it preempted are gone."""


@dataclass(frozen=True)
class Event:
    """What became of a head in one cycle."""

    step: Step
    assignment: Assignment
    targets: tuple[Target, ...]

    @property
    def workload(self) -> Workload:
        """The head."""
        return self.assignment.workload


type _Shape = tuple[int, tuple[PodSet, ...]]
"""All of a workload that counts in the search for flavors."""


def _shape(workload: Workload) -> _Shape:
    return workload.priority, workload.pod_sets


@dataclass
class _Waiting:
    """The waiting workloads of one queue."""

    active: dict[str, Workload] = field(default_factory=dict[str, Workload])
    aside: dict[str, Workload] = field(default_factory=dict[str, Workload])
    hopeless: set[_Shape] = field(default_factory=set["_Shape"])
    """Of those set aside: more of the kind are not even looked at."""
    preemptor: str = ""
    """It made room for itself and stays first until it is admitted or cannot be."""

    def head(self) -> Workload | None:
        """The first."""
        return min(self.active.values(), key=self._order, default=None)

    def push(self, workload: Workload) -> None:
        """Take one in."""
        (self.aside if _shape(workload) in self.hopeless else self.active)[workload.name] = workload

    def set_aside(self, workload: Workload) -> None:
        """It and all like it cannot be helped until something changes."""
        shape = _shape(workload)
        self.hopeless.add(shape)
        alike = [name for name, other in self.active.items() if _shape(other) == shape]
        self.aside |= {name: self.active.pop(name) for name in alike}
        if self.preemptor in self.aside:
            self.preemptor = ""

    def look_again(self) -> None:
        """Something changed."""
        self.active |= self.aside
        self.aside.clear()
        self.hopeless.clear()

    def _order(self, workload: Workload) -> tuple[bool, int, float, str]:
        return workload.name != self.preemptor, -workload.priority, workload.queued_at, workload.uid


@dataclass(frozen=True)
class _Entry:
    assignment: Assignment
    targets: list[Target]

    @property
    def workload(self) -> Workload:
        return self.assignment.workload

    @property
    def urgency(self) -> tuple[int, float, str]:
        return -self.workload.priority, self.workload.queued_at, self.workload.uid


class Scheduler:
    """The queues and their workloads, from cycle to cycle."""

    def __init__(self, situation: Situation) -> None:
        drained = {queue.name for queue in situation.queues if queue.stop_policy == "HoldAndDrain"}
        running = [found for found in situation.workloads if found.admission and found.queue not in drained]
        self._clock = max((found.admission.reserved_at for found in running if found.admission), default=0.0)
        self.snapshot = Snapshot(situation.queues, running, fair_sharing=situation.fair_sharing)
        self._waiting = {queue.name: _Waiting() for queue in situation.queues}
        self._leaving: list[Workload] = []
        """Preempted workloads that still have their chips."""
        self._freed = set[str]()
        """Queues that find more chips than when some of theirs were set aside."""
        self._resume_at: dict[str, tuple[int, ...]] = {}
        """Where the search for a flavor goes on, of workloads that the last cycle left to be tried again."""
        for workload in situation.workloads:
            if not workload.admission or workload.queue in drained:
                self.submit(workload)

    def submit(self, workload: Workload) -> None:
        """Let a workload wait in its queue."""
        self._waiting[workload.queue].push(workload.model_copy(update={"admission": None}))

    def waiting(self, queue: str) -> list[Workload]:
        """Those that wait in the queue."""
        found = self._waiting[queue]
        return [*found.active.values(), *found.aside.values()]

    def run(self) -> Iterator[Event]:
        """Cycle after cycle, until all that can be done is done or nobody asks for more."""
        while True:
            if heads := self._heads():
                events = self._cycle(heads)
                if moved := [event for event in events if event.step not in ("pending", "skipped")]:
                    yield from moved
                elif self._leaving:
                    self._release()
                else:
                    yield from events
            elif self._leaving:
                self._release()
            elif not self._second_look():
                return

    def _second_look(self) -> bool:
        """Kueue looks again at those set aside a second after chips came free: all that were active had their turn."""
        for queue in self._freed:
            self._waiting[queue].look_again()
        self._freed.clear()
        return bool(self._heads())

    def _heads(self) -> list[Workload]:
        waiting = (self._waiting[name] for name, queue in self.snapshot.ledger.queues.items() if not queue.stopped)
        return [head for head in (found.head() for found in waiting) if head]

    def _cycle(self, heads: list[Workload]) -> list[Event]:
        entries = [self._nominate(head) for head in heads]
        self._resume_at = {}
        order = _fairest_first(self.snapshot, entries) if self.snapshot.fair_sharing else _classical_order(entries)
        claims: list[tuple[str, Chips]] = []
        preempted: dict[str, Workload] = {}
        events = [self._process(entry, preempted, claims) for entry in order]
        for queue, chips in claims:
            self.snapshot.ledger.remove(queue, chips)
        for event in events:
            self._settle(event)
        return events

    def _nominate(self, head: Workload) -> _Entry:
        start = self._resume_at.get(head.name, (0,) * len(head.pod_sets))
        assignment = assign(self.snapshot, head, start)
        return _Entry(assignment, targets(self.snapshot, assignment) if assignment.mode == Mode.PREEMPT else [])

    def _process(self, entry: _Entry, preempted: dict[str, Workload], claims: list[tuple[str, Chips]]) -> Event:
        """What becomes of a head after those before it have claimed theirs."""
        assignment, queue = entry.assignment, entry.workload.queue
        mode = assignment.mode
        if mode == Mode.NO_FIT or (mode == Mode.PREEMPT and not entry.targets):
            if mode == Mode.PREEMPT and self.snapshot.queue(queue).reclaim != "Any":
                self._claim(claims, queue, self._reserved(assignment))
            # Other flavors of an earlier pod set may still be to be tried.
            return Event("skipped" if any(assignment.resume_at) else "waits", assignment, ())
        found = {target.workload.name: target.workload for target in entry.targets}
        gone = [*preempted.values(), *found.values()]
        if found.keys() & preempted.keys() or not self._fits_without(gone, assignment):
            return Event("skipped", assignment, tuple(entry.targets))
        preempted.update(found)
        self._claim(claims, queue, assignment.chips)
        if mode == Mode.FIT:
            return Event("admitted", assignment, ())
        ongoing = self._waiting[queue].preemptor == entry.workload.name and found.keys() <= self._names_of_leaving()
        return Event("pending" if ongoing else "preempts", assignment, tuple(entry.targets))

    def _names_of_leaving(self) -> set[str]:
        return {workload.name for workload in self._leaving}

    def _claim(self, claims: list[tuple[str, Chips]], queue: str, chips: Chips) -> None:
        self.snapshot.ledger.add(queue, chips)
        claims.append((queue, chips))

    def _fits_without(self, gone: list[Workload], assignment: Assignment) -> bool:
        ledger, queue = self.snapshot.ledger, assignment.workload.queue
        with ledger.without(gone):
            return all(chips <= ledger.available(queue, flavor) for flavor, chips in assignment.chips.items())

    def _reserved(self, assignment: Assignment) -> Chips:
        """What a head that nobody makes room for keeps from those after it, since it could not take it back."""
        ledger, queue = self.snapshot.ledger, self.snapshot.queue(assignment.workload.queue)
        limits = {quota.flavor: quota.borrowing_limit for quota in queue.flavors}
        reserved: Chips = {}
        for flavor, chips in assignment.chips.items():
            limit, own = limits[flavor], ledger.nominal(queue.name, flavor) - ledger.usage(queue.name, flavor)
            if not assignment.borrows:
                reserved[flavor] = max(0, min(chips, own))
            else:
                reserved[flavor] = chips if limit is None else min(chips, own + limit)
        return reserved

    def _settle(self, event: Event) -> None:
        workload = event.workload
        waiting = self._waiting[workload.queue]
        if event.step == "admitted":
            del waiting.active[workload.name]
            if waiting.preemptor == workload.name:
                waiting.preemptor = ""
            self._clock += 1
            admission = Admission(flavors=event.assignment.flavors, reserved_at=self._clock, evicted=False)
            self.snapshot.add(workload.model_copy(update={"admission": admission}))
        elif event.step == "skipped":
            self._resume_at[workload.name] = event.assignment.resume_at
        elif event.step == "waits":
            waiting.set_aside(workload)
        elif event.step == "preempts":
            waiting.preemptor = workload.name
            for target in event.targets:
                self._evict(target.workload)

    def _evict(self, workload: Workload) -> None:
        """Tell it to go; Kueue preempts such workloads before others."""
        if workload.admission and workload.name not in self._names_of_leaving():
            self.snapshot.remove(workload)
            evicted = workload.admission.model_copy(update={"evicted": True})
            self._leaving.append(workload.model_copy(update={"admission": evicted}))
            self.snapshot.add(self._leaving[-1])

    def _release(self) -> None:
        """Put preempted workloads back in their queues; their chips are free."""
        gone, self._leaving = self._leaving, []
        for workload in gone:
            self.snapshot.remove(workload)
            self.submit(workload)
            self._freed |= {workload.queue, *(other.name for other in self.snapshot.ledger.neighbours(workload.queue))}


def _classical_order(entries: list[_Entry]) -> list[_Entry]:
    return sorted(entries, key=lambda entry: (entry.assignment.borrows, *entry.urgency))


def _fairest_first(snapshot: Snapshot, entries: list[_Entry]) -> Iterator[_Entry]:
    """Each time the head whose queue would have the smallest share with it; what went before counts."""
    left = list(entries)
    while left:
        fairest = min(left, key=lambda entry: (*_share_with(snapshot, entry.assignment), *entry.urgency))
        left.remove(fairest)
        yield fairest


def _share_with(snapshot: Snapshot, assignment: Assignment) -> tuple[bool, Share]:
    """Whether the queue would borrow what the head asks for, and its share."""
    ledger, queue = snapshot.ledger, assignment.workload.queue
    with ledger.with_usage(queue, assignment.chips):
        cohort = snapshot.queue(queue).cohort is not None
        return cohort and any(ledger.borrows(queue, flavor) for flavor in assignment.chips), ledger.share(queue)
