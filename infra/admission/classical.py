"""Preemption without fair sharing: own priority, then the right to own chips, then borrowed ones.

Follows `classicalPreemptions` and `pkg/scheduler/preemption/classical` of Kueue on a flat cohort:
candidates are removed in order until the workload fits, then those that need not go are put back.
"""

from dataclasses import dataclass

from infra.admission.preemption import Contest, Reason, Target
from infra.admission.situation import Workload


@dataclass(frozen=True)
class _Candidate:
    workload: Workload
    reason: Reason
    without_borrowing: bool = False
    """It goes only for a workload that then uses no more than its queue's own chips."""


def search(contest: Contest) -> list[Target]:
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
