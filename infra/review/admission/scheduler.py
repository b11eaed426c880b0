"""Scheduling cycles: the flavor that a workload gets, the order in which the queues' heads are tried, and the results.

It follows `pkg/scheduler/flavorassigner`, `pkg/scheduler/scheduler.go` and `pkg/cache/queue` of Kueue with its default
queueing, best effort. In each cycle every queue nominates the first of its waiting workloads, whose flavors are tried
in the queue's order. Workloads that cannot be admitted are set aside until chips are freed in the cohort.

Preempted workloads keep their chips until all other waiting ones have been tried, and then release them together. In a
cluster they end one by one, like their pods, and a head of another queue may be faster."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Literal

from infra.review.admission.preemption import Contest, Target, classical_search, fair_search
from infra.review.admission.situation import (
    Admission,
    Chips,
    PodSet,
    Queue,
    Share,
    Situation,
    Snapshot,
    Waiting,
    Workload,
)


class Mode(IntEnum):
    """How a flavor could be obtained, from worst to best."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    """Others would have to be preempted, but none may be."""
    PREEMPT = 2
    RECLAIM = 3
    """Only workloads of other queues are preempted."""
    FIT = 4


@dataclass(frozen=True)
class Attempt:
    """One flavor tried for one pod set."""

    flavor: str
    mode: Mode
    borrows: bool
    """Whether the queue would then use chips of others."""
    needed: int
    """Chips, including those of the previous pod sets."""
    available: int
    potential: int
    """Maximum number of chips that the queue can ever use."""


@dataclass(frozen=True)
class Choice:
    """The result for one pod set."""

    pods: PodSet
    attempts: tuple[Attempt, ...]
    chosen: Attempt | None
    resume_at: int
    """Index of the flavor to continue with if the choice fails in this cycle."""

    @property
    def finds_no_candidates(self) -> bool:
        return self.chosen is not None and self.chosen.mode == Mode.NO_CANDIDATES


@dataclass(frozen=True)
class Assignment:
    """The results for the pod sets of a workload, up to the first without a flavor."""

    workload: Workload
    choices: tuple[Choice, ...]

    @cached_property
    def mode(self) -> Mode:
        """FIT, PREEMPT or NO_FIT: the worst of its pod sets."""
        modes = [choice.chosen.mode if choice.chosen else Mode.NO_FIT for choice in self.choices]
        worst = min(modes, default=Mode.FIT)
        return Mode.PREEMPT if Mode.NO_FIT < worst < Mode.FIT else worst

    @property
    def flavors(self) -> tuple[str, ...]:
        return tuple(choice.chosen.flavor for choice in self.choices if choice.chosen)

    @property
    def borrows(self) -> bool:
        return any(choice.chosen.borrows for choice in self.choices if choice.chosen)

    @property
    def chips(self) -> Chips:
        return _chosen_chips(self.choices)

    @property
    def contested(self) -> frozenset[str]:
        """Flavors with too few chips."""
        chosen = [choice.chosen for choice in self.choices if choice.chosen]
        return frozenset(attempt.flavor for attempt in chosen if attempt.mode != Mode.FIT)

    @property
    def resume_at(self) -> tuple[int, ...]:
        """Index of the flavor with which the next search begins, by pod set."""
        left = len(self.workload.pod_sets) - len(self.choices)
        return (*(choice.resume_at for choice in self.choices), *(0,) * left)


def assign(snapshot: Snapshot, workload: Workload, start: tuple[int, ...]) -> Assignment:
    """Return the best flavors for the workload; `start` has the first index to try for each pod set."""
    choices: tuple[Choice, ...] = ()
    for pods, first in zip(workload.pod_sets, start, strict=True):
        choices += (_choose(snapshot, workload, pods, first, _chosen_chips(choices)),)
        if choices[-1].chosen is None:
            break
    return Assignment(workload, choices)


def targets(snapshot: Snapshot, assignment: Assignment) -> list[Target]:
    """Return the workloads that are preempted for it."""
    if len(assignment.choices) == 1 and assignment.choices[0].finds_no_candidates:
        return []
    return _search(Contest(snapshot, assignment.workload, assignment.chips, assignment.contested))


def _search(contest: Contest) -> list[Target]:
    if contest.is_hopeless:
        return []
    return fair_search(contest) if contest.snapshot.fair_sharing else classical_search(contest)


def _chosen_chips(choices: tuple[Choice, ...]) -> Chips:
    chips: Chips = {}
    for choice in choices:
        if choice.chosen:
            chips[choice.chosen.flavor] = chips.get(choice.chosen.flavor, 0) + choice.pods.chips
    return chips


def _choose(snapshot: Snapshot, workload: Workload, pods: PodSet, first: int, taken: Chips) -> Choice:
    queue = snapshot.queue(workload.queue)
    attempts: list[Attempt] = []
    best: Attempt | None = None
    index = first - 1
    for index in range(first, len(queue.flavors)):
        flavor = queue.flavors[index].flavor
        if pods.flavors is not None and flavor not in pods.flavors:
            continue
        attempt = _attempt(snapshot, workload, flavor, pods.chips + taken.get(flavor, 0))
        attempts.append(attempt)
        if not _tries_next(attempt, queue):
            best = attempt
            break
        if attempt.mode != Mode.NO_FIT and (best is None or _rank(attempt) > _rank(best)):
            best = attempt
    tried_all = index == len(queue.flavors) - 1
    return Choice(pods, tuple(attempts), best, 0 if tried_all or best is None else index + 1)


def _attempt(snapshot: Snapshot, workload: Workload, flavor: str, needed: int) -> Attempt:
    queue, ledger = snapshot.queue(workload.queue), snapshot.ledger
    available, potential = ledger.available(queue.name, flavor), ledger.potential(queue.name, flavor)
    borrows = queue.cohort is not None and ledger.borrows(queue.name, flavor, needed)
    mode = Mode.NO_FIT
    if needed <= min(available, potential):
        mode = Mode.FIT
    elif needed <= potential and _may_preempt(snapshot, queue, flavor, needed):
        mode, borrows = _preempting(Contest(snapshot, workload, {flavor: needed}, frozenset([flavor])))
    return Attempt(flavor, mode, borrows, needed, available, potential)


def _may_preempt(snapshot: Snapshot, queue: Queue, flavor: str, needed: int) -> bool:
    ledger = snapshot.ledger
    by_right = queue.cohort is not None and not ledger.borrows(queue.name, flavor, needed)
    while_borrowing = queue.while_borrowing != "Never" or (snapshot.fair_sharing and queue.reclaim != "Never")
    return needed <= ledger.nominal(queue.name, flavor) or by_right or while_borrowing


def _preempting(contest: Contest) -> tuple[Mode, bool]:
    """Return how others would be preempted, and whether the queue would then borrow."""
    found = [target.workload for target in _search(contest)]
    ((flavor, needed),) = contest.needs.items()
    ledger, queue = contest.snapshot.ledger, contest.queue
    if not found:
        return Mode.NO_CANDIDATES, queue.cohort is not None and ledger.borrows(queue.name, flavor, needed)
    with ledger.without(found):
        borrows = queue.cohort is not None and ledger.borrows(queue.name, flavor, needed)
    return (Mode.PREEMPT if any(other.queue == queue.name for other in found) else Mode.RECLAIM), borrows


def _tries_next(attempt: Attempt, queue: Queue) -> bool:
    if attempt.mode in (Mode.NO_FIT, Mode.NO_CANDIDATES):
        return True
    preempts = attempt.mode in (Mode.PREEMPT, Mode.RECLAIM)
    return (preempts and queue.when_can_preempt == "TryNextFlavor") or (
        attempt.borrows and queue.when_can_borrow == "TryNextFlavor"
    )


def _rank(attempt: Attempt) -> tuple[Mode, bool]:
    return attempt.mode, not attempt.borrows


Step = Literal["admitted", "preempts", "pending", "waits", "skipped"]
"""Result of a cycle for a head. `pending`: it waits until the workloads that it preempted are gone."""


@dataclass(frozen=True)
class Event:
    """The result for a head in one cycle."""

    step: Step
    assignment: Assignment
    targets: tuple[Target, ...]

    @property
    def workload(self) -> Workload:
        return self.assignment.workload


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
    """The queues and their workloads over several cycles."""

    def __init__(self, situation: Situation) -> None:
        drained = {queue.name for queue in situation.queues if queue.stop_policy == "HoldAndDrain"}
        running = [found for found in situation.workloads if found.admission and found.queue not in drained]
        self._clock = max((found.admission.reserved_at for found in running if found.admission), default=0.0)
        self.snapshot = Snapshot(situation.queues, running, fair_sharing=situation.fair_sharing)
        self._waiting = {queue.name: Waiting() for queue in situation.queues}
        self._leaving: list[Workload] = []
        """Preempted workloads that still have their chips."""
        self._freed = set[str]()
        """Queues with more free chips than when some of their workloads were set aside."""
        self._resume_at: dict[str, tuple[int, ...]] = {}
        """First flavors to try for workloads that the last cycle skipped."""
        for workload in situation.workloads:
            if not workload.admission or workload.queue in drained:
                self.submit(workload)

    def submit(self, workload: Workload) -> None:
        self._waiting[workload.queue].push(workload.admitted_by(None))

    def finish(self, queue: str, name: str) -> None:
        """Free the chips of a running workload."""
        workload = self.snapshot.running(queue)[name]
        self.snapshot.remove(workload)
        self._freed |= self._competing(workload)

    def waiting(self, queue: str) -> list[Workload]:
        return [*self._waiting[queue].workloads.values()]

    def run(self) -> Iterator[Event]:
        """Run cycles until nothing changes any more, or the caller stops."""
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
        """Try skipped workloads again, as Kueue does a second after chips were freed. All others had their turn."""
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
        order = (
            _fairest_first(self.snapshot, entries)
            if self.snapshot.fair_sharing
            else sorted(entries, key=lambda each: (each.assignment.borrows, *each.urgency))
        )
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
        assignment, queue = entry.assignment, entry.workload.queue
        mode = assignment.mode
        if mode == Mode.NO_FIT or (mode == Mode.PREEMPT and not entry.targets):
            if mode == Mode.PREEMPT and self.snapshot.queue(queue).reclaim != "Any":
                self._claim(claims, queue, self._reserved(assignment))
            # Other flavors of an earlier pod set may not have been tried yet.
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
        """Return the chips that a head without preemptable workloads withholds from later heads, because it could
        not reclaim them."""
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
            waiting.remove(workload.name)
            self._clock += 1
            admission = Admission(flavors=event.assignment.flavors, reserved_at=self._clock, evicted=False)
            self.snapshot.add(workload.admitted_by(admission))
        elif event.step == "skipped":
            self._resume_at[workload.name] = event.assignment.resume_at
        elif event.step == "waits":
            waiting.set_aside(workload)
        elif event.step == "preempts":
            waiting.preemptor = workload.name
            for target in event.targets:
                self._evict(target.workload)

    def _evict(self, workload: Workload) -> None:
        """Stop it. Kueue preempts such workloads before others."""
        if workload.admission and workload.name not in self._names_of_leaving():
            self.snapshot.remove(workload)
            evicted = workload.admission.model_copy(update={"evicted": True})
            self._leaving.append(workload.admitted_by(evicted))
            self.snapshot.add(self._leaving[-1])

    def _release(self) -> None:
        gone, self._leaving = self._leaving, []
        for workload in gone:
            self.snapshot.remove(workload)
            self.submit(workload)
            self._freed |= self._competing(workload)

    def _competing(self, workload: Workload) -> set[str]:
        return {workload.queue, *(other.name for other in self.snapshot.ledger.neighbours(workload.queue))}


def _fairest_first(snapshot: Snapshot, entries: list[_Entry]) -> Iterator[_Entry]:
    """Yield the head whose queue would have the smallest share with it, including what was claimed before."""
    left = list(entries)
    while left:
        fairest = min(left, key=lambda entry: (*_share_with(snapshot, entry.assignment), *entry.urgency))
        left.remove(fairest)
        yield fairest


def _share_with(snapshot: Snapshot, assignment: Assignment) -> tuple[bool, Share]:
    """Return whether the queue would borrow what the head asks for, and its share."""
    ledger, queue = snapshot.ledger, assignment.workload.queue
    with ledger.with_usage(queue, assignment.chips):
        cohort = snapshot.queue(queue).cohort is not None
        return cohort and any(ledger.borrows(queue, flavor) for flavor in assignment.chips), ledger.share(queue)
