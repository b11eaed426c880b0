"""The workloads that wait in a queue, in the order in which Kueue tries them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from infra.review.admission.situation import PodSet, Workload

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
    _turns: Iterator[int] = field(default_factory=count)

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
