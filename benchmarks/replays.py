"""Measures replays of a month on five teams, each with a share of three shapes: `python -m benchmarks.replays [LOAD]`.

LOAD is the share of the chips that jobs ask for. Prints CPU seconds and the memory of the process for each size.
"""

import resource
import sys
import time
from dataclasses import replace
from typing import NamedTuple

from infra.review.replay.fleet import Fleet
from infra.review.replay.results import Summary
from infra.review.replay.trace import Trace
from tests.infra.review.admission.situations import queue
from tests.infra.review.replay.fleets import drawn, group, of_queues, stream, summary

_TEAMS, _DAYS, _HOURS = "abcde", 30, 30 * 24
_SHAPES = {"4x4": 16, "4x8": 32, "8x8": 64}
_SIZES = {1000: 1120, 4000: 3100, 13_000: 10_000}
"""Chips by number of jobs."""
_JOB = {"hours": {"median": 1, "p90": 3.6}, "save_minutes": 15, "peak_share": 0.4}
_CONDITIONS = {"failures_per_day": 0.02, "spares": 1, "restart_hours": 0.1, "lead_hours": 0.5}


def _trace(jobs: int, chip_hours: float) -> Trace:
    """Draw jobs of three sizes and priorities for each team, which ask for so many chip-hours together."""
    streams = [
        stream(team, jobs * share / _DAYS / len(_TEAMS) / 3, shape=shape, priority=priority, **_JOB)
        for team in _TEAMS
        for shape in _SHAPES
        for priority, share in (("low", 0.2), ("normal", 0.5), ("high", 0.3))
    ]
    trace = drawn(*streams, days=_DAYS, seed=1)
    longer = chip_hours / sum(job.hours * job.slices * _SHAPES[job.shape] for job in trace.jobs)
    return replace(trace, jobs=tuple(replace(job, hours=min(job.hours * longer, _HOURS / 4)) for job in trace.jobs))


def _fleet(trace: Trace, chips: int) -> Fleet:
    """Give each team as many chips of each shape as jobs ask for, in whole slices."""
    work = {shape: sum(job.hours * job.slices for job in trace.jobs if job.shape == shape) for shape in _SHAPES}
    share = chips / len(_TEAMS) / sum(hours * _SHAPES[shape] for shape, hours in work.items())
    quotas = {shape: max(1, round(share * hours)) * _SHAPES[shape] for shape, hours in work.items()}
    groups = [group(shape, quota * len(_TEAMS), shape, _SHAPES[shape]) for shape, quota in quotas.items()]
    return of_queues([queue(team, quotas) for team in _TEAMS], *groups)


class Measured(NamedTuple):
    """One replay."""

    jobs: int
    chips: int
    cpu_seconds: float
    mebibytes: int
    """Largest memory of this process so far."""
    found: Summary


def measure(jobs: int, chips: int, load: float) -> Measured:
    """Replay a month of about so many jobs and chips."""
    trace = _trace(jobs, load * chips * _HOURS)
    fleet, began = _fleet(trace, chips), time.process_time()
    found = summary(trace, fleet, **_CONDITIONS)
    seconds = time.process_time() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return Measured(len(trace.jobs), sum(group.chips for group in fleet.groups.values()), seconds, memory, found)


def main() -> None:
    """Print a row for each size."""
    load = float(sys.argv[1]) if len(sys.argv) > 1 else 0.85
    for size in _SIZES.items():
        row = measure(*size, load)
        results = f"{row.found.preemptions} preemptions, p90 of waits {row.found.overall.p90} h"
        print(
            f"{row.jobs} jobs on {row.chips} chips: {row.cpu_seconds:.2f} CPU seconds, {row.mebibytes} MiB; {results}"
        )


if __name__ == "__main__":
    main()
