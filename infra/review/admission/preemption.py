"""Which workloads a workload may preempt, and which it does, with and without fair sharing.

It follows `pkg/scheduler/preemption` of Kueue for a flat cohort: `classicalPreemptions` and `fairPreemptions`, the
latter with both of the strategies that `infra.operators` configures."""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from math import inf
from typing import Literal

from infra.review.admission.situation import Chips, Ledger, Policy, Queue, Share, Snapshot, Workload

Reason = Literal["InClusterQueue", "InCohortReclamation", "InCohortReclaimWhileBorrowing", "InCohortFairSharing"]


@dataclass(frozen=True)
class Target:
    """A workload that is preempted."""

    workload: Workload
    reason: Reason


@dataclass(frozen=True)
class Contest:
    """A workload, and the chips that are not free for it."""

    snapshot: Snapshot
    workload: Workload
    needs: Chips
    contested: frozenset[str]
    """Flavors with too few free chips."""

    @property
    def queue(self) -> Queue:
        return self.snapshot.queue(self.workload.queue)

    def fits(self, *, borrowing: bool) -> bool:
        """Return whether its chips are free now, including borrowed ones if `borrowing`."""
        ledger, queue = self.snapshot.ledger, self.workload.queue
        return all(
            chips <= ledger.available(queue, flavor) and (borrowing or not ledger.borrows(queue, flavor, chips))
            for flavor, chips in self.needs.items()
        )

    @property
    def is_hopeless(self) -> bool:
        """Return whether its chips would not be free even without all workloads that it may preempt.

        It saves the search for most workloads of a full cluster, and never hides a result of the search."""
        return any(self._shortage(flavor) > 0 for flavor in self.contested)

    def _shortage(self, flavor: str) -> int:
        ledger, queue, needed = self.snapshot.ledger, self.queue, self.needs[flavor]
        own = self._preemptable(queue, flavor, queue.within_queue)
        missing = needed - ledger.available(queue.name, flavor) - own
        borrows = ledger.borrows(queue.name, flavor, needed - own)
        # Then only workloads of its own queue could make room.
        if borrows and queue.while_borrowing == "Never" and not self.snapshot.fair_sharing:
            return missing
        for other in ledger.neighbours(queue.name) if missing > 0 else ():
            if not other.stopped and ledger.borrows(other.name, flavor):
                missing -= self._preemptable(other, flavor, queue.reclaim)
        return missing

    def _preemptable(self, queue: Queue, flavor: str, policy: Policy) -> int:
        """Return the chips of a queue's workloads that the policy allows to preempt, or of a few more."""
        if policy == "Never":
            return 0
        mine = self.workload.priority
        most = inf if policy == "Any" else mine if policy == "LowerOrNewerEqualPriority" else mine - 1
        return self.snapshot.chips_up_to(queue.name, flavor, most)

    def candidates(self, queue: str, policy: Policy) -> list[Workload]:
        """Return the workloads of a queue with contested chips that the policy allows to preempt."""
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
        """Return the sort key of candidates: evicted ones, those of other queues, the least urgent, the newest."""
        admission = candidate.admission
        assert admission, "only running workloads can be preempted"
        own = candidate.queue == self.workload.queue
        return not admission.evicted, own, candidate.priority, -admission.reserved_at, candidate.uid

    def spare(self, targets: list[Target], fits: Callable[[], bool]) -> list[Target]:
        """Return the removed targets that must really be preempted. The first removed targets are restored last."""
        needed = targets[-1:]
        for target in reversed(targets[:-1]):
            self.snapshot.add(target.workload)
            if not fits():
                self.snapshot.remove(target.workload)
                needed.append(target)
        return needed

    def restore(self, targets: Iterable[Target]) -> None:
        """Let removed targets run again."""
        for target in targets:
            self.snapshot.add(target.workload)


@dataclass(frozen=True)
class _Candidate:
    workload: Workload
    reason: Reason
    without_borrowing: bool = False
    """Whether only a workload that then uses no more than its queue's own chips may preempt it."""


def classical_search(contest: Contest) -> list[Target]:
    """Return the workloads to preempt by priority and borrowing. Candidates are removed in order until the workload
    fits, then those that are not needed are restored. Empty if no choice is sufficient."""
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
    queue, ledger = contest.queue, contest.snapshot.ledger
    entitled = not any(ledger.borrows(queue.name, flavor, chips) for flavor, chips in contest.needs.items())
    return [
        _variant(contest, other, entitled=entitled)
        for neighbour in ledger.neighbours(queue.name)
        if not neighbour.stopped and _borrows_contested(contest, neighbour.name)
        for other in contest.candidates(neighbour.name, queue.reclaim)
    ]


def _variant(contest: Contest, other: Workload, *, entitled: bool) -> _Candidate:
    """Return the reason to preempt `other`: reclamation, if the workload needs only its queue's own chips."""
    if entitled:
        return _Candidate(other, "InCohortReclamation")
    if contest.queue.while_borrowing == "Never" or other.priority >= contest.workload.priority:
        return _Candidate(other, "InCohortReclamation", without_borrowing=True)
    return _Candidate(other, "InCohortReclaimWhileBorrowing")


def _attempts(contest: Contest, candidates: list[_Candidate]) -> list[bool]:
    """Return whether the workload may borrow, in the order in which both are tried."""
    queue, ledger = contest.queue, contest.snapshot.ledger
    others = [found for found in candidates if found.workload.queue != queue.name]
    by_right = [found for found in others if found.reason == "InCohortReclamation" and not found.without_borrowing]
    forbidden = queue.while_borrowing == "Never"
    below_nominal = all(ledger.usage(queue.name, name) < ledger.nominal(queue.name, name) for name in contest.contested)
    if not others or (forbidden and not below_nominal):
        return [True]
    return [False, True] if forbidden and not by_right else [True, False]


def _still_valid(contest: Contest, candidate: _Candidate, *, borrowing: bool) -> bool:
    queue = candidate.workload.queue
    if queue == contest.workload.queue:
        return True
    return not (borrowing and candidate.without_borrowing) and _borrows_contested(contest, queue)


def _borrows_contested(contest: Contest, queue: str) -> bool:
    return any(contest.snapshot.ledger.borrows(queue, flavor) for flavor in contest.contested)


type _Waiting = dict[str, list[Workload]]
"""Candidates by queue, in order."""


def fair_search(contest: Contest) -> list[Target]:
    """Return the workloads to preempt by fair shares: from the queue with the largest share, while that is fairer."""
    candidates = sorted(_candidates(contest), key=contest.order)
    targets: list[Target] = []
    # Shares include the new workload.
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
    """Preempt while the queue's share is at most the other queue's remaining share. Return whether that is enough."""
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
    """Preempt one workload of each queue with a larger share than the queue's own. Return whether that is enough."""
    ledger, waiting, dropped = contest.snapshot.ledger, _by_queue(candidates), set[str]()
    for queue in _largest_share_first(contest, waiting, dropped):
        candidate = waiting[queue].pop(0)
        fairer = ledger.share(contest.workload.queue) < ledger.share(queue)
        if fairer and _take(contest, Target(candidate, "InCohortFairSharing"), targets):
            return True
        dropped.add(queue)
    return False


def _take(contest: Contest, target: Target, targets: list[Target]) -> bool:
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
    """Yield the queue to preempt from next, until none is left. The caller takes a candidate or drops the queue."""
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
