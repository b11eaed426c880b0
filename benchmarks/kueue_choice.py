"""Chooses trials to record: a few that reach all branches of `infra.admission`, rare ones, and some of every kind."""

import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import CodeType

from benchmarks.kueue_situations import Trial, cycle_kinds, draw_named, expected
from infra import admission
from infra.admission.rehearsal import rehearse
from infra.admission.situation import Situation, Workload

type Branch = tuple[int, int, int]
"""`id` of the code, because code is slow to compare, and the offsets of the two ends of the branch."""

_DRAWN = 1000
"""Number of trials of each kind to choose from."""
_TIMES = 3
"""Number of trials that should reach each branch, because a trial may end differently in a cluster."""
_RARE = {
    False: ("c332", "c476", "c1178", "c1314", "c2247", "c3011"),
    True: ("c792", "c899", "c2048", "c2707", "t79", "t87", "t113", "t942"),
}
"""Trials, by fair sharing, in which a detail decides: a queue does not lend some chips; it reaches its borrowing limit;
one of several candidates is not preempted; with equal shares neither is preempted."""
_SOURCES = str(Path(admission.__file__).parent)


def choose(count: int, seed: int, *, fair_sharing: bool) -> list[Trial]:
    """Return `count` trials, most of them drawn from this seed and the following ones."""
    names = [f"{kind}{number}" for kind in "tc" for number in range(seed, seed + _DRAWN)]
    drawn = [draw_named(name, fair_sharing=fair_sharing) for name in names]
    rare = (draw_named(name, fair_sharing=fair_sharing) for name in _RARE[fair_sharing])
    trials = (*rare, *_covering(drawn, fair_sharing=fair_sharing), *cycle_kinds(drawn, fair_sharing=fair_sharing))
    return list(islice({trial.name: trial for trial in trials}.values(), count))


def branches(situation: Situation, newcomer: Workload) -> frozenset[Branch]:
    """Return the branches of `infra.admission` that a simulation takes."""
    taken = set[Branch]()

    def take(code: CodeType, start: int, end: int) -> object:
        if not code.co_filename.startswith(_SOURCES):
            return monitoring.DISABLE
        taken.add((id(code), start, end))
        return None

    monitoring, tool = sys.monitoring, sys.monitoring.COVERAGE_ID
    monitoring.use_tool_id(tool, __name__)
    try:
        monitoring.register_callback(tool, monitoring.events.BRANCH, take)
        monitoring.set_events(tool, monitoring.events.BRANCH)
        rehearse(situation, newcomer)
    finally:
        monitoring.set_events(tool, monitoring.events.NO_EVENTS)
        monitoring.free_tool_id(tool)
    return frozenset(taken)


def _covering(trials: list[Trial], *, fair_sharing: bool) -> Iterator[Trial]:
    """Yield, repeatedly, the trial that takes most of the branches that too few trials have taken so far."""
    taken = {trial.name: branches(*expected(trial, fair_sharing=fair_sharing)) for trial in trials}
    wanted = Counter({branch: _TIMES for each in taken.values() for branch in each})
    left = {trial.name: trial for trial in trials}
    while best := max(left, key=lambda name: sum(wanted[branch] > 0 for branch in taken[name]), default=None):
        gained = [branch for branch in taken[best] if wanted[branch] > 0]
        if not gained:
            return
        wanted.subtract(gained)
        yield left.pop(best)
