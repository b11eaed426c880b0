"""Preemption under fair sharing: from the queue with the largest share, as long as that is fairer.

Follows `fairPreemptions` and `pkg/scheduler/preemption/fairsharing` of Kueue on a flat cohort, with
both of the strategies that `infra.operators` configures.
"""

from collections.abc import Generator, Iterable

from infra.admission.ledger import Ledger, Share
from infra.admission.preemption import Contest, Target
from infra.admission.situation import Workload

type _Waiting = dict[str, list[Workload]]
"""Candidates by queue, in order."""


def search(contest: Contest) -> list[Target]:
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
