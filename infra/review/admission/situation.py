"""Input of Kueue's decisions: queues, the workloads that run and wait in them, and the chips that each queue uses,
lends and borrows.

The data is in Kueue's words (https://kueue.sigs.k8s.io/docs/concepts/cluster_queue). The arithmetic follows
`pkg/cache/scheduler/resource_node.go` and `fair_sharing.go` of Kueue for a flat cohort: a queue keeps what its lending
limit holds back. The rest of its quota belongs to the cohort, from which every queue takes up to its borrowing limit.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush
from typing import Annotated, Literal

from pydantic import Field

from workloads.spec.base import Spec

type Chips = dict[str, int]
"""Chips by flavor."""
type Share = tuple[bool, float]
"""A queue's share of what its cohort lends, for its weight. The higher it is, the sooner its workloads are preempted.
First whether the queue borrows with a weight of zero, which is more than any share with a weight."""
Policy = Literal["Never", "LowerPriority", "LowerOrNewerEqualPriority", "Any"]
Search = Literal["MayStopSearch", "TryNextFlavor"]


class FlavorQuota(Spec):
    """Chips of one flavor that a queue has."""

    flavor: str
    nominal: int
    borrowing_limit: int | None
    """Maximum number of borrowed chips. `None` for all idle ones."""
    lending_limit: int | None
    """Maximum number of lent chips. `None` for all of its own."""

    @property
    def kept(self) -> int:
        """Return the chips that the queue does not lend."""
        return 0 if self.lending_limit is None else max(0, self.nominal - self.lending_limit)


class Queue(Spec):
    """A ClusterQueue."""

    name: str
    cohort: str | None
    flavors: tuple[FlavorQuota, ...]
    """In the order in which they are tried."""
    checked_flavors: frozenset[str]
    """Flavors for which a workload with quota still waits for an admission check."""
    within_queue: Policy
    reclaim: Policy
    while_borrowing: Literal["Never", "LowerPriority"]
    when_can_borrow: Search
    when_can_preempt: Search
    weight: float
    """Weight under fair sharing."""
    stop_policy: Literal["None", "Hold", "HoldAndDrain"]

    @property
    def stopped(self) -> bool:
        return self.stop_policy != "None"


class PodSet(Spec):
    """Equal pods of a workload, which get one flavor."""

    name: str
    chips: int
    flavors: frozenset[str] | None
    """Flavors whose nodes they may use; `None` for any."""


class Admission(Spec):
    """A workload's quota."""

    flavors: tuple[str, ...]
    """One for each of its pod sets; empty for pods without chips."""
    reserved_at: float
    evicted: bool
    """Whether it is being stopped, and gives its quota back when its pods are gone."""


class Workload(Spec):
    """The chips that a job requests."""

    name: str
    """Unique name, including the namespace."""
    uid: str
    """Decides between equal workloads."""
    queue: str
    priority: int
    queued_at: Annotated[float, Field(allow_inf_nan=True)]
    """Seconds since 1970 when it was created, or requeued because its pods did not start; infinite for a future job."""
    pod_sets: tuple[PodSet, ...]
    admission: Admission | None
    """Its admission. `None` while it waits."""

    @property
    def chips(self) -> int:
        return sum(pods.chips for pods in self.pod_sets)

    @cached_property
    def usage(self) -> Chips:
        return chips_of(self.pod_sets, self.admission.flavors) if self.admission else {}

    @cached_property
    def shape(self) -> tuple[int, tuple[PodSet, ...]]:
        """Return everything that matters in the search for flavors."""
        return self.priority, self.pod_sets

    def admitted_by(self, admission: Admission | None) -> "Workload":
        """Return the workload with another admission."""
        changed = self.model_copy(update={"admission": admission})
        # A copy has the cached values of its original.
        vars(changed).pop("usage", None)
        return changed


class Situation(Spec):
    """A cluster's queues at one moment."""

    queues: tuple[Queue, ...]
    workloads: tuple[Workload, ...]
    fair_sharing: bool


def chips_of(pod_sets: tuple[PodSet, ...], flavors: tuple[str, ...]) -> Chips:
    """Return the chips of the pod sets by flavor; `flavors` has one for each pod set."""
    total = Counter[str]()
    for pods, flavor in zip(pod_sets, flavors, strict=True):
        if flavor:
            total[flavor] += pods.chips
    return dict(total)


class Ledger:
    """Quotas of some queues, and their usage."""

    def __init__(self, queues: Iterable[Queue]) -> None:
        self.queues = {queue.name: queue for queue in queues}
        self._quotas = {(queue.name, quota.flavor): quota for queue in queues for quota in queue.flavors}
        self._usage = defaultdict[tuple[str, str], int](int)
        self._pool = defaultdict[tuple[str, str], int](int)
        """Chips that all queues of a cohort lend together, by cohort and flavor."""
        self._taken = defaultdict[tuple[str, str], int](int)
        """Chips that the queues of a cohort borrow from it, by cohort and flavor."""
        for queue in self.queues.values():
            if queue.cohort:
                for quota in queue.flavors:
                    self._pool[queue.cohort, quota.flavor] += quota.nominal - quota.kept

    def add(self, queue: str, chips: Chips) -> None:
        """Count chips as used by the queue."""
        cohort = self.queues[queue].cohort
        for flavor, count in chips.items():
            before = self._shared(queue, flavor)
            self._usage[queue, flavor] += count
            if cohort:
                self._taken[cohort, flavor] += self._shared(queue, flavor) - before

    def remove(self, queue: str, chips: Chips) -> None:
        """Count chips as no longer used by the queue."""
        self.add(queue, {flavor: -count for flavor, count in chips.items()})

    @contextmanager
    def without(self, workloads: Iterable[Workload]) -> Generator[None]:
        """Act as if these workloads did not run."""
        gone = list(workloads)
        for workload in gone:
            self.remove(workload.queue, workload.usage)
        yield
        for workload in gone:
            self.add(workload.queue, workload.usage)

    @contextmanager
    def with_usage(self, queue: str, chips: Chips) -> Generator[None]:
        """Act as if the queue used these chips as well."""
        self.add(queue, chips)
        yield
        self.remove(queue, chips)

    def usage(self, queue: str, flavor: str) -> int:
        return self._usage[queue, flavor]

    def nominal(self, queue: str, flavor: str) -> int:
        """Return the queue's own chips."""
        quota = self._quotas.get((queue, flavor))
        return quota.nominal if quota else 0

    def available(self, queue: str, flavor: str) -> int:
        """Return the chips that the queue may use in addition to those it uses."""
        cohort, quota, used = self.queues[queue].cohort, self._quotas[queue, flavor], self._usage[queue, flavor]
        if not cohort:
            return max(0, quota.nominal - used)
        shared = self._pool[cohort, flavor] - self._taken[cohort, flavor]
        if quota.borrowing_limit is not None:
            shared = min(shared, quota.nominal - quota.kept - self._shared(queue, flavor) + quota.borrowing_limit)
        return max(0, max(0, quota.kept - used) + shared)

    def potential(self, queue: str, flavor: str) -> int:
        """Return the chips that the queue could use if no other queue used any."""
        cohort, quota = self.queues[queue].cohort, self._quotas[queue, flavor]
        if not cohort:
            return quota.nominal
        most = quota.kept + self._pool[cohort, flavor]
        return most if quota.borrowing_limit is None else min(most, quota.nominal + quota.borrowing_limit)

    def borrows(self, queue: str, flavor: str, more: int = 0) -> bool:
        """Return whether the queue uses more than its own chips, with `more` chips on top."""
        return self._usage[queue, flavor] + more > self.nominal(queue, flavor)

    def idle(self, queue: str, flavor: str) -> int:
        """Return the queue's own chips that it does not use and lends."""
        quota = self._quotas.get((queue, flavor))
        return max(0, quota.nominal - max(quota.kept, self._usage[queue, flavor])) if quota else 0

    def neighbours(self, queue: str) -> list[Queue]:
        cohort = self.queues[queue].cohort
        return [other for other in self.queues.values() if cohort and other.cohort == cohort and other.name != queue]

    def share(self, queue: str) -> Share:
        """Return what the queue borrows, in thousandths of what the cohort lends, divided by its weight."""
        found = self.queues[queue]
        lent = sum(chips for (cohort, _), chips in self._pool.items() if cohort == found.cohort)
        ratio = 1000 * self._borrowed(found) / lent if lent > 0 else 0.0
        if found.weight == 0:
            return ratio > 0, ratio
        return False, ratio / found.weight

    def borrows_any(self, queue: str) -> bool:
        return self._borrowed(self.queues[queue]) > 0

    def _borrowed(self, queue: Queue) -> int:
        if not queue.cohort:
            return 0
        return sum(max(0, self._usage[queue.name, quota.flavor] - quota.nominal) for quota in queue.flavors)

    def _shared(self, queue: str, flavor: str) -> int:
        quota = self._quotas.get((queue, flavor))
        return max(0, self._usage[queue, flavor] - (quota.kept if quota else 0))


class Snapshot:
    """Running workloads by queue and name, and the chips they use. A trial changes it and then restores it."""

    def __init__(self, queues: Iterable[Queue], running: Iterable[Workload], *, fair_sharing: bool) -> None:
        self.fair_sharing = fair_sharing
        self.ledger = Ledger(queues)
        self._running: dict[str, dict[str, Workload]] = {name: {} for name in self.ledger.queues}
        self._by_priority = defaultdict[tuple[str, str], Counter[int]](Counter[int])
        """Chips of running workloads by their priority, by queue and flavor."""
        for workload in running:
            self.add(workload)

    def queue(self, name: str) -> Queue:
        return self.ledger.queues[name]

    def running(self, queue: str) -> Mapping[str, Workload]:
        """Return the workloads that have quota in the queue, by name."""
        return self._running[queue]

    def chips_up_to(self, queue: str, flavor: str, priority: float) -> int:
        """Return the chips of a queue's running workloads with at most this priority."""
        return sum(chips for other, chips in self._by_priority[queue, flavor].items() if other <= priority)

    def add(self, workload: Workload) -> None:
        self._running[workload.queue][workload.name] = workload
        self.ledger.add(workload.queue, workload.usage)
        for flavor, chips in workload.usage.items():
            self._by_priority[workload.queue, flavor][workload.priority] += chips

    def remove(self, workload: Workload) -> None:
        del self._running[workload.queue][workload.name]
        self.ledger.remove(workload.queue, workload.usage)
        for flavor, chips in workload.usage.items():
            self._by_priority[workload.queue, flavor][workload.priority] -= chips

    def copy(self) -> "Snapshot":
        running = (workload for queue in self._running.values() for workload in queue.values())
        return Snapshot(self.ledger.queues.values(), running, fair_sharing=self.fair_sharing)


type _Shape = tuple[int, tuple[PodSet, ...]]
type _Heap = list[tuple[float, str, int, str]]
"""Workloads of one shape: times, UIDs, turns in which they came, and names."""


@dataclass
class Waiting:
    """The waiting workloads of one queue."""

    workloads: dict[str, Workload] = field(default_factory=dict[str, Workload])
    preemptor: str = ""
    """The workload that preempted others; it stays first until it is admitted or cannot be."""
    _active: dict[_Shape, _Heap] = field(default_factory=dict["_Shape", "_Heap"])
    """Workloads by shape. Some of these have been admitted."""
    _hopeless: dict[_Shape, _Heap] = field(default_factory=dict["_Shape", "_Heap"])
    """Those of shapes that are skipped until something changes."""
    _turns: Iterator[int] = field(default_factory=itertools.count)

    def head(self) -> Workload | None:
        """Return the workload to try next; `None` if there is none."""
        if self.preemptor:
            return self.workloads[self.preemptor]
        firsts = [self.workloads[name] for name in map(self._first, [*self._active]) if name]
        return min(firsts, key=lambda first: (-first.priority, first.queued_at, first.uid), default=None)

    def _first(self, shape: _Shape) -> str:
        """Return the name of the first workload of a shape; empty if there is none."""
        heap = self._active[shape]
        while heap and heap[0][3] not in self.workloads:
            heappop(heap)
        if heap:
            return heap[0][3]
        del self._active[shape]
        return ""

    def push(self, workload: Workload) -> None:
        self.workloads[workload.name] = workload
        shape, place = workload.shape, (workload.queued_at, workload.uid, next(self._turns), workload.name)
        heappush(self._hopeless[shape] if shape in self._hopeless else self._active.setdefault(shape, []), place)

    def remove(self, name: str) -> None:
        del self.workloads[name]
        if self.preemptor == name:
            self.preemptor = ""

    def set_aside(self, workload: Workload) -> None:
        """Skip this workload, and all of the same shape, until something changes."""
        self._hopeless[workload.shape] = self._active.pop(workload.shape)
        if self.preemptor and self.workloads[self.preemptor].shape == workload.shape:
            self.preemptor = ""

    def look_again(self) -> None:
        """Try all workloads again."""
        self._active |= self._hopeless
        self._hopeless.clear()
