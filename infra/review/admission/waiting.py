"""The workloads that wait in a queue, in the order in which Kueue tries them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from infra.review.admission.situation import PodSet, Workload

type _Shape = tuple[int, tuple[PodSet, ...]]


@dataclass
class Waiting:
    """The waiting workloads of one queue."""

    workloads: dict[str, Workload] = field(default_factory=dict[str, Workload])
    hopeless: set[_Shape] = field(default_factory=set["_Shape"])
    """Shapes that are skipped until something changes. Workloads of these shapes are not tried."""
    preemptor: str = ""
    """The workload that preempted others; it stays first until it is admitted or cannot be."""
    _first: dict[_Shape, list[tuple[float, str, int, str]]] = field(default_factory=dict)
    """Heaps of the workloads by shape: times, UIDs, turns and names. Some of these have been admitted."""
    _turns: Iterator[int] = field(default_factory=count)

    def head(self) -> Workload | None:
        if self.preemptor:
            return self.workloads[self.preemptor]
        shapes = [shape for shape in self._first if shape not in self.hopeless]
        firsts = (self.workloads[name] for shape in shapes if (name := self._first_of(shape)))
        return min(firsts, key=lambda first: (-first.priority, first.queued_at, first.uid), default=None)

    def _first_of(self, shape: _Shape) -> str:
        """Return the name of the first workload of a shape; empty if there is none."""
        heap = self._first[shape]
        while heap and heap[0][3] not in self.workloads:
            heappop(heap)
        if heap:
            return heap[0][3]
        del self._first[shape]
        return ""

    def push(self, workload: Workload) -> None:
        self.workloads[workload.name] = workload
        place = (workload.queued_at, workload.uid, next(self._turns), workload.name)
        heappush(self._first.setdefault(workload.shape, []), place)

    def remove(self, name: str) -> None:
        del self.workloads[name]
        if self.preemptor == name:
            self.preemptor = ""

    def set_aside(self, workload: Workload) -> None:
        """Skip this workload, and all of the same shape, until something changes."""
        self.hopeless.add(workload.shape)
        if self.preemptor and self.workloads[self.preemptor].shape in self.hopeless:
            self.preemptor = ""

    def look_again(self) -> None:
        self.hopeless.clear()
