"""Follows the pace of a run: which hosts slow it down, and when it is time to save.

A step ends on all hosts together, because its collectives wait for the last one. What differs is the time that a host
keeps the others waiting after the previous step (reading rows, Python, saving). A slow chip slows the steps of all
hosts equally and is not found here. That needs a profile.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multislice_run.records.lines import Pace

if TYPE_CHECKING:
    # Reports compare hosts on machines without JAX.
    from workloads.training.runtime import Processes

STRAGGLING_SHARE = 0.1
"""Share of a step by which a straggler's own time exceeds that of the median host."""


@dataclass(frozen=True)
class Comparison:
    """Comparison of all hosts."""

    hosts: int
    deviation_seconds: float
    """Standard deviation of the hosts' mean step times."""
    slowest: str
    """Host that keeps the devices waiting longest."""
    slowest_seconds: float
    median_seconds: float
    straggles: bool


def compare(paces: Sequence[Pace]) -> Comparison:
    """Compare the paces of one or more hosts."""
    slowest = max(paces, key=lambda pace: pace.host_seconds)
    median = statistics.median(pace.host_seconds for pace in paces)
    return Comparison(
        hosts=len(paces),
        deviation_seconds=statistics.pstdev(pace.step_seconds for pace in paces),
        slowest=slowest.host,
        slowest_seconds=slowest.host_seconds,
        median_seconds=median,
        straggles=slowest.host_seconds - median > STRAGGLING_SHARE * slowest.step_seconds,
    )


class SaveTimer:
    """Decides by the leader's clock when to save.

    Each decision includes the batch of the next query. Batches are used and not steps, because steps repeat after a
    rollback and hosts can agree on each number only once. The next query is after half of the steps that fit in the
    remaining time, so there are about ten queries between two saves, and a save is not late if the pace halves.
    """

    def __init__(
        self, limit_seconds: float, processes: "Processes", batch: int, clock: Callable[[], float] = time.monotonic
    ):
        self._limit = limit_seconds
        self._processes = processes
        self._clock = clock
        self.restart(batch)

    def restart(self, batch: int) -> None:
        """Restart the time, because the state before `batch` is saved."""
        self._saved = self._asked = self._clock()
        self._asked_batch, self._ask_at = batch, batch + 1

    def is_up(self, batch: int) -> bool:
        """Return whether to save before `batch`. Every process must query the same batches in the same order."""
        if batch < self._ask_at:
            return False
        self._ask_at = self._processes.share(f"save/{batch}", lambda: self._next(batch))
        return self._ask_at == batch

    def _next(self, batch: int) -> int:
        """Return the batch of the next query, which is `batch` itself if there is no time for two more."""
        now = self._clock()
        seconds_per_batch = (now - self._asked) / (batch - self._asked_batch)
        left = self._limit - (now - self._saved)
        self._asked, self._asked_batch = now, batch
        return batch + max(0, int(left / 2 / max(seconds_per_batch, 1e-6)))
