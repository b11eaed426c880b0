"""When the longest time between two saves is up: the same answer on every host, without one asking at every step.

Owns time; saves by step number, at the end and at SIGTERM are up to `loop`.
"""

import time
from collections.abc import Callable

from workloads.training.runtime import Processes


class SaveTimer:
    """The leader's clock decides, and says with each decision at which step the hosts shall ask it again.

    That is half of the steps that the time left seems to allow, so it is asked some ten times between two saves and
    a pace that falls by half does not make a save late.
    """

    def __init__(
        self, limit_seconds: float, processes: Processes, step: int, clock: Callable[[], float] = time.monotonic
    ):
        self._limit = limit_seconds
        self._processes = processes
        self._clock = clock
        self.saved(step)

    def saved(self, step: int) -> None:
        """The state after `step` is safe: the time begins anew."""
        self._saved = self._asked = self._clock()
        self._asked_step, self._ask_at = step, step + 1

    def is_up(self, step: int) -> bool:
        """Whether to save after `step`; every process asks for the same steps, one after the other."""
        if step < self._ask_at:
            return False
        self._ask_at = int(
            self._processes.share(f"save/{step}", str(self._next(step)) if self._processes.leads else "")
        )
        return self._ask_at == step

    def _next(self, step: int) -> int:
        """The step to ask at next; `step` itself when there is no time for two more."""
        now = self._clock()
        seconds_per_step = (now - self._asked) / (step - self._asked_step)
        left = self._limit - (now - self._saved)
        self._asked, self._asked_step = now, step
        return step + max(0, int(left / 2 / max(seconds_per_step, 1e-6)))
