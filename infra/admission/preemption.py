"""Which workloads a workload may preempt, and which it does, with and without fair sharing."""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Literal

from infra.admission.situation import Chips, Ledger, Policy, Queue, Share, Snapshot, Workload

Reason = Literal["InClusterQueue", "InCohortReclamation", "InCohortReclaimWhileBorrowing", "InCohortFairSharing"]


@dataclass(frozen=True)
class Target:
    """A workload that has to go."""

    workload: Workload
    reason: Reason


@dataclass(frozen=True)
class Contest:
    """A workload, and the chips that it does not find free."""

    snapshot: Snapshot
    workload: Workload
    needs: Chips
    contested: frozenset[str]
    """The flavors of them that do not suffice."""

    @property
    def queue(self) -> Queue:
        """Its queue."""
        return self.snapshot.queue(self.workload.queue)

    def fits(self, *, borrowing: bool) -> bool:
        """Whether it finds its chips now, borrowed ones included if `borrowing`."""
        ledger, queue = self.snapshot.ledger, self.workload.queue
        return all(
            chips <= ledger.available(queue, flavor) and (borrowing or not ledger.borrows(queue, flavor, chips))
            for flavor, chips in self.needs.items()
        )

    def candidates(self, queue: str, policy: Policy) -> list[Workload]:
        """Workloads of a queue that hold contested chips and that the policy lets go."""
        return [
            other
            for other in self.snapshot.running(queue).values()
            if self._allowed(other, policy) and not self.contested.isdisjoint(other.usage)
        ]

    def _allowed(self, other: Workload, policy: Policy) -> bool:
        mine = self.workload
        if policy in ("Never", "Any"):
            return policy == "Any"
        newer = other.priority == mine.priority and mine.queued_at < other.queued_at
        return other.priority < mine.priority or (policy == "LowerOrNewerEqualPriority" and newer)

    def order(self, candidate: Workload) -> tuple[bool, bool, int, float, str]:
        """Sorts candidates: those being evicted, other queues', the least urgent, the last that came."""
        admission = candidate.admission
        assert admission, "only running workloads can be pushed out"
        own = candidate.queue == self.workload.queue
        return not admission.evicted, own, candidate.priority, -admission.reserved_at, candidate.uid

    def spare(self, targets: list[Target], fits: Callable[[], bool]) -> list[Target]:
        """Those of the targets, all removed, that really must go; the first removed are spared last."""
        needed = targets[-1:]
        for target in reversed(targets[:-1]):
            self.snapshot.add(target.workload)
            if not fits():
                self.snapshot.remove(target.workload)
                needed.append(target)
        return needed

    def restore(self, targets: Iterable[Target]) -> None:
        """Put removed targets back."""
        for target in targets:
            self.snapshot.add(target.workload)


@dataclass(frozen=True)
class _Candidate:
    workload: Workload
    reason: Reason
    without_borrowing: bool = False
    """It goes only for a workload that then uses no more than its queue's own chips."""


def classical_search(contest: Contest) -> list[Target]:
    """Workloads that go; none when no choice of them suffices."""
    candidates = sorted((*_own(contest), *_of_others(contest)), key=lambda found: contest.order(found.workload))
    for borrowing in _attempts(contest, candidates):
        targets: list[Target] = []
        for candidate in candidates:
            if not _still_valid(contest, candidate, borrowing=borrowing):
                continue
            contest.snapshot.remove(candidate.workload)
            targets.append(Target(candidate.workload, candidate.reason))
            if contest.fits(borrowing=borrowing):
                needed = contest.spare(targets, lambda borrowing=borrowing: contest.fits(borrowing=borrowing))
                contest.restore(needed)
                return needed
        contest.restore(targets)
    return []


def _own(contest: Contest) -> list[_Candidate]:
    queue = contest.queue
    return [_Candidate(other, "InClusterQueue") for other in contest.candidates(queue.name, queue.within_queue)]


def _of_others(contest: Contest) -> list[_Candidate]:
    """Workloads on chips that their queues have borrowed."""
    queue, ledger = contest.queue, contest.snapshot.ledger
    entitled = not any(ledger.borrows(queue.name, flavor, chips) for flavor, chips in contest.needs.items())
    return [
        _variant(contest, other, entitled=entitled)
        for neighbour in ledger.neighbours(queue.name)
        if not neighbour.stopped and _borrows_contested(contest, neighbour.name)
        for other in contest.candidates(neighbour.name, queue.reclaim)
    ]


def _variant(contest: Contest, other: Workload, *, entitled: bool) -> _Candidate:
    """How `other` may be pushed out: by right, if the workload needs no more than its queue's own chips."""
    if entitled:
        return _Candidate(other, "InCohortReclamation")
    if contest.queue.while_borrowing == "Never" or other.priority >= contest.workload.priority:
        return _Candidate(other, "InCohortReclamation", without_borrowing=True)
    return _Candidate(other, "InCohortReclaimWhileBorrowing")


def _attempts(contest: Contest, candidates: list[_Candidate]) -> list[bool]:
    """Whether the workload may borrow, in the order in which it is tried."""
    queue, ledger = contest.queue, contest.snapshot.ledger
    others = [found for found in candidates if found.workload.queue != queue.name]
    by_right = [found for found in others if found.reason == "InCohortReclamation" and not found.without_borrowing]
    forbidden = queue.while_borrowing == "Never"
    below_nominal = all(ledger.usage(queue.name, name) < ledger.nominal(queue.name, name) for name in contest.contested)
    if not others or (forbidden and not below_nominal):
        return [True]
    return [False, True] if forbidden and not by_right else [True, False]


def _still_valid(contest: Contest, candidate: _Candidate, *, borrowing: bool) -> bool:
    """Whether it may go after those before it went."""
    queue = candidate.workload.queue
    if queue == contest.workload.queue:
        return True
    return not (borrowing and candidate.without_borrowing) and _borrows_contested(contest, queue)


def _borrows_contested(contest: Contest, queue: str) -> bool:
    return any(contest.snapshot.ledger.borrows(queue, flavor) for flavor in contest.contested)


type _Waiting = dict[str, list[Workload]]
"""Candidates by queue, in order."""


def fair_search(contest: Contest) -> list[Target]:
    """Workloads that go; none when no choice of them suffices."""
    candidates = sorted(_candidates(contest), key=contest.order)
    targets: list[Target] = []
    # Shares count the workload that comes.
    with contest.snapshot.ledger.with_usage(contest.workload.queue, contest.needs):
        found = _by_final_share(contest, candidates, targets)
    if not found:
        contest.restore(targets)
        return []
    needed = contest.spare(targets, lambda: contest.fits(borrowing=True))
    contest.restore(needed)
    return needed


def _candidates(contest: Contest) -> Generator[Workload]:
    queue, ledger = contest.queue, contest.snapshot.ledger
    yield from contest.candidates(queue.name, queue.within_queue)
    for neighbour in ledger.neighbours(queue.name):
        if not neighbour.stopped and any(ledger.borrows(neighbour.name, flavor) for flavor in contest.contested):
            yield from contest.candidates(neighbour.name, queue.reclaim)


def _by_final_share(contest: Contest, candidates: list[Workload], targets: list[Target]) -> bool:
    """Take workloads while the queue's share stays at most what is left to theirs; whether that suffices."""
    ledger, own = contest.snapshot.ledger, contest.workload.queue
    waiting, refused = _by_queue(candidates), list[Workload]()
    entitled = not any(ledger.borrows(own, flavor) for flavor in contest.contested)
    for queue in _largest_share_first(contest, waiting, set()):
        if queue == own or entitled:
            reason = "InClusterQueue" if queue == own else "InCohortReclamation"
            if _take(contest, Target(waiting[queue].pop(0), reason), targets):
                return True
            continue
        share = ledger.share(own)
        while waiting[queue]:
            candidate = waiting[queue].pop(0)
            if share <= _share_without(ledger, candidate):
                if _take(contest, Target(candidate, "InCohortFairSharing"), targets):
                    return True
                break
            refused.append(candidate)
    return _by_initial_share(contest, refused, targets)


def _by_initial_share(contest: Contest, candidates: list[Workload], targets: list[Target]) -> bool:
    """Take one workload of each queue whose share is larger than the own one; whether that suffices."""
    ledger, waiting, dropped = contest.snapshot.ledger, _by_queue(candidates), set[str]()
    for queue in _largest_share_first(contest, waiting, dropped):
        candidate = waiting[queue].pop(0)
        fairer = ledger.share(contest.workload.queue) < ledger.share(queue)
        if fairer and _take(contest, Target(candidate, "InCohortFairSharing"), targets):
            return True
        dropped.add(queue)
    return False


def _take(contest: Contest, target: Target, targets: list[Target]) -> bool:
    """Let it go; whether the workload fits now."""
    contest.snapshot.remove(target.workload)
    targets.append(target)
    ledger, queue = contest.snapshot.ledger, contest.workload.queue
    ledger.remove(queue, contest.needs)
    fits = contest.fits(borrowing=True)
    ledger.add(queue, contest.needs)
    return fits


def _share_without(ledger: Ledger, workload: Workload) -> Share:
    with ledger.without([workload]):
        return ledger.share(workload.queue)


def _largest_share_first(contest: Contest, waiting: _Waiting, dropped: set[str]) -> Generator[str]:
    """The queue to take from next, until none is left; whoever asks takes a candidate or drops the queue."""
    ledger, own = contest.snapshot.ledger, contest.workload.queue
    while True:
        dropped |= {name for name in waiting if not waiting[name] or not (name == own or ledger.borrows_any(name))}
        left = [name for name in waiting if name not in dropped]
        if not left:
            return
        largest = max(ledger.share(name) for name in left)
        equals = [name for name in left if ledger.share(name) == largest]
        yield min(equals, key=lambda name: contest.order(waiting[name][0]))


def _by_queue(candidates: Iterable[Workload]) -> _Waiting:
    waiting: _Waiting = {}
    for candidate in candidates:
        waiting.setdefault(candidate.queue, []).append(candidate)
    return waiting
