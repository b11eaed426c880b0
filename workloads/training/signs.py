"""Signs of life that hosts give each other, so that one which stands still is named before all end for it.

Owns what a host leaves for the others once a second, and the leader's list of those who stopped doing so. JAX aborts
everybody when a host is silent for long and names nobody in storage; the list is there earlier. It accuses nobody for
good: a host that holds Python's lock for some seconds is on it for as long, and ends nothing.
"""

import time
from contextlib import suppress

import jax

from workloads.training.runtime import Processes

SILENT_SECONDS = 5.0
"""Well below half of JAX's heartbeat time-out (`runtime`), after which it may abort the others."""

_SIGNS = "signs-of-life"
_SILENT = "silent-hosts"


class Signs:
    """The signs of one process, and on the leader those of all."""

    def __init__(self, processes: Processes):
        self._processes = processes
        self._given = 0
        self._seen: dict[str, tuple[str, float]] = {}
        """By host: its last sign, and when this process saw it first, by its own clock."""

    def exchange(self) -> None:
        """Give a sign; on the leader, look who gave none."""
        self._given += 1
        # Where the signs are kept is on the leader: when it is gone there is nobody to name anyone.
        with suppress(jax.errors.JaxRuntimeError):
            self._processes.put(_SIGNS, f"{self._processes.host} {self._given}")
            if self._processes.leads:
                self._processes.put(_SILENT, ", ".join(self._look()))

    def silent(self) -> str:
        """Hosts that give no sign of life, in words; empty when all do, or nobody can tell."""
        with suppress(jax.errors.JaxRuntimeError):
            return "".join(self._processes.left(_SILENT))
        return ""

    def _look(self) -> list[str]:
        now = time.monotonic()
        for host, _, number in (sign.rpartition(" ") for sign in self._processes.left(_SIGNS)):
            if self._seen.get(host, ("", now))[0] != number:
                self._seen[host] = (number, now)
        return sorted(host for host, (_, since) in self._seen.items() if now - since > SILENT_SECONDS)
