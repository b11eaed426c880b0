"""Compares the pace of the hosts and finds stragglers.

A step ends on all hosts together, because its collectives wait for the last one. What differs is the time that a host
keeps the others waiting after the previous step (reading rows, Python, saving). A slow chip slows the steps of all
hosts equally and is not found here. That needs a profile.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from multislice_run.records.lines import Pace

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
