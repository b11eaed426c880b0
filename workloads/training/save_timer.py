"""When the longest time between two saves is up: the same answer on every host, without one asking at every step.

Owns time; saves by step number, at the end and at SIGTERM are up to `loop`.
"""

import time
from collections.abc import Callable

from workloads.training.runtime import Processes


class SaveTimer:
    """The leader's clock decides, and says with each decision at which batch the hosts shall ask it again: batches
    and not steps, since a rollback takes the steps back and the hosts can talk about each number once.

    That is half of the steps that the time left seems to allow, so it is asked some ten times between two saves and
    a pace that falls by half does not make a save late.
    """

    def __init__(
        self, limit_seconds: float, processes: Processes, batch: int, clock: Callable[[], float] = time.monotonic
    ):
        self._limit = limit_seconds
        self._processes = processes
        self._clock = clock
        self.saved(batch)

    def saved(self, batch: int) -> None:
        """The state before `batch` is safe: the time begins anew."""
        self._saved = self._asked = self._clock()
        self._asked_batch, self._ask_at = batch, batch + 1

    def is_up(self, batch: int) -> bool:
        """Whether to save before `batch`; every process asks for the same batches, one after the other."""
        if batch < self._ask_at:
            return False
        self._ask_at = int(
            self._processes.share(f"save/{batch}", str(self._next(batch)) if self._processes.leads else "")
        )
        return self._ask_at == batch

    def _next(self, batch: int) -> int:
        """The batch to ask at next; `batch` itself when there is no time for two more."""
        now = self._clock()
        seconds_per_batch = (now - self._asked) / (batch - self._asked_batch)
        left = self._limit - (now - self._saved)
        self._asked, self._asked_batch = now, batch
        return batch + max(0, int(left / 2 / max(seconds_per_batch, 1e-6)))
