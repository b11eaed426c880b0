"""Would the workload be admitted, and at whose cost.

Owns the question asked of `infra.admission.cycles`, and what of the answer a `Verdict` tells.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, product

from infra.admission.assignment import Assignment, Attempt, Mode, assign
from infra.admission.cycles import Scheduler
from infra.admission.preemption import Target
from infra.admission.situation import Queue, Situation, Workload, chips_of
from infra.admission.snapshot import Snapshot
from infra.admission.verdict import Holder, Loan, Outcome, Preempted, Shortage, Verdict

_MOST_EVENTS_EACH = 8
"""By workload. Where more happen, workloads push each other out in turn for ever."""


def rehearse(situation: Situation, workload: Workload) -> Verdict:
    """What Kueue does first with a workload that is submitted now, once all that waits has been looked at.

    Raises:
        ValueError: the situation has no such queue.
    """
    if workload.queue not in {queue.name for queue in situation.queues}:
        names = ", ".join(queue.name for queue in situation.queues)
        raise ValueError(f"expected one of the queues {names} for {workload.name}, got {workload.queue!r}")
    scheduler = Scheduler(situation)
    most = _MOST_EVENTS_EACH * (len(situation.workloads) + 1)
    earlier = list(islice(scheduler.run(), most))
    before, waiting = scheduler.snapshot.copy(), scheduler.waiting(workload.queue)
    scheduler.submit(workload)
    later = list(islice(scheduler.run(), most))
    own = (event for event in later if event.workload.name == workload.name and event.step != "skipped")
    decided = next(own, None)
    return _Finding(
        before=before,
        assignment=decided.assignment if decided else assign(before, workload, (0,) * len(workload.pod_sets)),
        step=decided.step if decided else "waits",
        targets=decided.targets if decided else (),
        admitted_in_the_end=workload.name in scheduler.snapshot.running(workload.queue),
        restless=most in (len(earlier), len(later)),
        waiting=waiting,
        started_first=tuple(event.workload.name for event in earlier if event.step == "admitted"),
    ).verdict()


@dataclass(frozen=True)
class _Finding:
    """What became of the workload, and the queues as they were before it came."""

    before: Snapshot
    assignment: Assignment
    step: str
    targets: tuple[Target, ...]
    admitted_in_the_end: bool
    restless: bool
    waiting: list[Workload]
    started_first: tuple[str, ...]

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
            preempted=tuple(map(_preempted, self.targets)) if outcome == "preempts" else (),
            admitted_in_the_end=self.admitted_in_the_end,
            restless=self.restless,
            shortages=() if outcome == "admitted" else tuple(map(_shortage, self._failed())),
            holders=tuple(self._holders()) if waits else (),
            ahead=tuple(other.name for other in self.waiting if self._before_me(other)) if waits else (),
            started_first=self.started_first,
            stopped=self.queue.stopped,
            checked_flavors=tuple(sorted(self.queue.checked_flavors & set(self.assignment.flavors))) if gets else (),
            unknown=(),
        )

    def _outcome(self) -> Outcome:
        if self.step == "admitted":
            return "admitted"
        if self.step == "preempts":
            return "preempts"
        return "waits" if self._possible() else "never"

    def _possible(self) -> bool:
        """Whether any choice of flavors would do if nobody else had chips."""
        pod_sets, offered = self.workload.pod_sets, [quota.flavor for quota in self.queue.flavors]
        usable = ([name for name in offered if pods.flavors is None or name in pods.flavors] for pods in pod_sets)
        return any(
            all(chips <= self.before.ledger.potential(self.queue.name, flavor) for flavor, chips in needed.items())
            for needed in (chips_of(pod_sets, flavors) for flavors in product(*usable))
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
        """Those that have chips of flavors that would do if they were free, the largest first."""
        wanted = {attempt.flavor for attempt in self._failed() if attempt.needed <= attempt.potential}
        queues = [self.queue, *self.before.ledger.neighbours(self.queue.name)]
        running = (workload for queue in queues for workload in self.before.running(queue.name).values())
        for other in sorted(running, key=lambda other: -other.chips):
            chips = {flavor: count for flavor, count in other.usage.items() if flavor in wanted}
            if chips:
                yield Holder(workload=other.name, queue=other.queue, priority=other.priority, chips=chips)

    def _before_me(self, other: Workload) -> bool:
        return (-other.priority, other.queued_at) < (-self.workload.priority, self.workload.queued_at)


def _preempted(target: Target) -> Preempted:
    other = target.workload
    return Preempted(
        workload=other.name, queue=other.queue, priority=other.priority, chips=other.chips, reason=target.reason
    )


def _shortage(attempt: Attempt) -> Shortage:
    return Shortage(flavor=attempt.flavor, needed=attempt.needed, available=attempt.available, most=attempt.potential)
