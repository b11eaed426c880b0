"""Whom a workload may push out, and whom it does.

Owns the rules that hold with and without fair sharing, and the choice between the two searches:
`infra.admission.classical` and `infra.admission.fair`. Follows `pkg/scheduler/preemption` of Kueue.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from infra.admission.situation import Chips, Policy, Queue, Workload
from infra.admission.snapshot import Snapshot

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
