"""Simulates how many steps wait for their rows when some reads of object storage are slow.

The trainer's own `ReadAhead` runs for each host, on threads with simulated time. A batch takes as long as its slowest
row. All hosts take a step together, as soon as the last of them has its rows. Nothing here was measured on object
storage. The assumptions are that read times are independent and log-normal with a median of 60 ms and one in a thousand
above 1 s, and that steps take the times in `CASES`.
"""

import heapq
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future
from math import log
from typing import Any

import numpy as np

from workloads.training.data import AHEAD_BATCHES, READING_THREADS
from workloads.training.read_ahead import ReadAhead

MEDIAN_SECONDS, SLOWEST_IN_1000_SECONDS = 0.06, 1.0
_DEVIATIONS = 3.0902
"""Number of standard deviations below which 999 of 1000 values of a normal distribution are."""

STEPS = 400

CASES = {
    "8 hosts": (8, 12, 0.87),
    "64 hosts": (64, 16, 0.87),
    "256 hosts": (256, 16, 3.2),
}
"""Number of hosts, number of rows that each reads for a step, and seconds of a step without waiting."""

PRESENT = {"depth": AHEAD_BATCHES, "threads": READING_THREADS}


class _Clock:
    now = 0.0


class _Threads(Executor):
    """Threads in simulated time. The result of a read is the time at which it ends."""

    def __init__(self, count: int, clock: _Clock):
        self._free = [0.0] * count
        self._clock = clock

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        begin = max(heapq.heappop(self._free), self._clock.now)
        end = begin + fn(*args, **kwargs)
        heapq.heappush(self._free, end)
        done: Future[Any] = Future()
        done.set_result(end)
        return done


def stalled_share(hosts: int, rows: int, step_seconds: float, depth: int, threads: int, steps: int = STEPS) -> float:
    """Return the share of the steps after the first for which the hosts must wait for rows."""
    spread = log(SLOWEST_IN_1000_SECONDS / MEDIAN_SECONDS) / _DEVIATIONS
    random, clock = np.random.default_rng(0), _Clock()

    def seconds(_: int) -> float:
        return float(random.lognormal(log(MEDIAN_SECONDS), spread, rows).max())

    readers = [ReadAhead(seconds, "rows", depth, sys.maxsize, 1.0, _Threads(threads, clock)) for _ in range(hosts)]
    stalled = 0
    for step in range(steps + 1):
        ready = max(reader.take(step) for reader in readers)
        stalled += step > 0 and ready > clock.now
        clock.now = max(clock.now, ready) + step_seconds
    return stalled / steps


def main() -> int:
    """Print the share for the trainer's settings and for smaller ones."""
    settings = {"1 batch ahead, 1 thread": (1, 1), "4 ahead, 2 threads": (4, 2), "8 ahead, 4 threads": (8, 4)}
    settings |= {f"{AHEAD_BATCHES} ahead, {READING_THREADS} threads": (AHEAD_BATCHES, READING_THREADS)}
    for name, case in CASES.items():
        for words, (depth, threads) in settings.items():
            share = stalled_share(*case, depth=depth, threads=threads)
            print(f"{name}, {case[1]} rows each, steps of {case[2]} s, {words}: {share:.1%} of steps wait")
    return 0


if __name__ == "__main__":
    sys.exit(main())
