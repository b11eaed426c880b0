"""Which flavor a workload gets, and how.

Follows `pkg/scheduler/flavorassigner` of Kueue: flavors are tried in the queue's order, for one pod
set after the other; how far the search goes is the queue's fungibility.
"""

from collections import Counter
from dataclasses import dataclass
from enum import IntEnum

from infra.admission.preemption import Contest, Target, classical_search, fair_search
from infra.admission.situation import Chips, PodSet, Queue, Snapshot, Workload


class Mode(IntEnum):
    """How a flavor could be had, from worst to best."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    """Others would have to go, and none of them may be made to."""
    PREEMPT = 2
    RECLAIM = 3
    """All that go are of other queues."""
    FIT = 4


@dataclass(frozen=True)
class Attempt:
    """One flavor tried for one pod set."""

    flavor: str
    mode: Mode
    borrows: bool
    """When it has its chips, the queue uses others'."""
    needed: int
    """Chips, with those of the pod sets before it."""
    available: int
    potential: int
    """Most that the queue can ever use."""


@dataclass(frozen=True)
class Choice:
    """What was found for one pod set."""

    pods: PodSet
    attempts: tuple[Attempt, ...]
    chosen: Attempt | None
    resume_at: int
    """Index of the flavor to begin with, should the choice come to nothing in this cycle."""


@dataclass(frozen=True)
class Assignment:
    """What was found for the pod sets of a workload, up to the first that nothing was found for."""

    workload: Workload
    choices: tuple[Choice, ...]

    @property
    def mode(self) -> Mode:
        """FIT, PREEMPT or NO_FIT: the worst of its pod sets."""
        modes = [choice.chosen.mode if choice.chosen else Mode.NO_FIT for choice in self.choices]
        worst = min(modes, default=Mode.FIT)
        return Mode.PREEMPT if Mode.NO_FIT < worst < Mode.FIT else worst

    @property
    def flavors(self) -> tuple[str, ...]:
        """By pod set."""
        return tuple(choice.chosen.flavor for choice in self.choices if choice.chosen)

    @property
    def borrows(self) -> bool:
        """Whether any pod set makes the queue use others' chips."""
        return any(choice.chosen.borrows for choice in self.choices if choice.chosen)

    @property
    def chips(self) -> Chips:
        """By flavor."""
        return _chosen_chips(self.choices)

    @property
    def contested(self) -> frozenset[str]:
        """Flavors that do not suffice."""
        chosen = [choice.chosen for choice in self.choices if choice.chosen]
        return frozenset(attempt.flavor for attempt in chosen if attempt.mode != Mode.FIT)

    @property
    def resume_at(self) -> tuple[int, ...]:
        """Where the next search begins, by pod set."""
        left = len(self.workload.pod_sets) - len(self.choices)
        return (*(choice.resume_at for choice in self.choices), *(0,) * left)


def assign(snapshot: Snapshot, workload: Workload, start: tuple[int, ...]) -> Assignment:
    """The best flavors for the workload, from those at the indices `start` on."""
    choices: tuple[Choice, ...] = ()
    for pods, first in zip(workload.pod_sets, start, strict=True):
        choices += (_choose(snapshot, workload, pods, first, _chosen_chips(choices)),)
        if choices[-1].chosen is None:
            break
    return Assignment(workload, choices)


def targets(snapshot: Snapshot, assignment: Assignment) -> list[Target]:
    """Who goes for it."""
    return _search(Contest(snapshot, assignment.workload, assignment.chips, assignment.contested))


def _search(contest: Contest) -> list[Target]:
    return fair_search(contest) if contest.snapshot.fair_sharing else classical_search(contest)


def _chosen_chips(choices: tuple[Choice, ...]) -> Chips:
    chips = Counter[str]()
    for choice in choices:
        if choice.chosen:
            chips[choice.chosen.flavor] += choice.pods.chips
    return dict(chips)


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
    """How others would have to go, and whether the queue would then borrow."""
    found = [target.workload for target in _search(contest)]
    ((flavor, needed),) = contest.needs.items()
    ledger, queue = contest.snapshot.ledger, contest.queue
    with ledger.without(found):
        borrows = queue.cohort is not None and ledger.borrows(queue.name, flavor, needed)
    if not found:
        return Mode.NO_CANDIDATES, borrows
    return (Mode.PREEMPT if any(other.queue == queue.name for other in found) else Mode.RECLAIM), borrows


def _tries_next(attempt: Attempt, queue: Queue) -> bool:
    """Whether the search goes on after this flavor."""
    if attempt.mode in (Mode.NO_FIT, Mode.NO_CANDIDATES):
        return True
    preempts = attempt.mode in (Mode.PREEMPT, Mode.RECLAIM)
    return (preempts and queue.when_can_preempt == "TryNextFlavor") or (
        attempt.borrows and queue.when_can_borrow == "TryNextFlavor"
    )


def _rank(attempt: Attempt) -> tuple[Mode, bool]:
    return attempt.mode, not attempt.borrows
