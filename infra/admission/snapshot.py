"""The queues as one scheduling cycle sees them: quotas and who runs.

Owns what a trial changes and puts back. What is decided on it lies in `infra.admission.assignment`
and `infra.admission.preemption`.
"""

from collections.abc import Iterable, Mapping

from infra.admission.ledger import Ledger
from infra.admission.situation import Queue, Workload


class Snapshot:
    """Running workloads by queue and name, and the chips they use."""

    def __init__(self, queues: Iterable[Queue], running: Iterable[Workload], *, fair_sharing: bool) -> None:
        self.fair_sharing = fair_sharing
        self.ledger = Ledger(queues)
        self._running: dict[str, dict[str, Workload]] = {name: {} for name in self.ledger.queues}
        for workload in running:
            self.add(workload)

    def queue(self, name: str) -> Queue:
        """The queue of this name."""
        return self.ledger.queues[name]

    def running(self, queue: str) -> Mapping[str, Workload]:
        """Those that have quota in the queue."""
        return self._running[queue]

    def add(self, workload: Workload) -> None:
        """Let an admitted workload run."""
        self._running[workload.queue][workload.name] = workload
        self.ledger.add(workload.queue, workload.usage)

    def remove(self, workload: Workload) -> None:
        """Let it run no more."""
        del self._running[workload.queue][workload.name]
        self.ledger.remove(workload.queue, workload.usage)

    def copy(self) -> "Snapshot":
        """The same, for other changes."""
        running = (workload for queue in self._running.values() for workload in queue.values())
        return Snapshot(self.ledger.queues.values(), running, fair_sharing=self.fair_sharing)
