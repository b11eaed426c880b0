"""How the hosts keep pace with each other.

Owns the comparison of step times and the name of the straggler. A step ends on all hosts together,
because its collectives wait for the last one; what differs is the time that a host keeps the others
waiting (reading rows, Python, saving) after the step before has ended. A slow chip slows the step time of all
hosts alike and cannot be told apart here: that needs a profile.
"""

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Self

STRAGGLING_SHARE = 0.1
"""A host whose own time exceeds the median host's by this share of a step is named."""


@dataclass(frozen=True)
class Pace:
    """Means of one host over its last steps."""

    host: str
    step: int
    step_seconds: float
    host_seconds: float
    """Part of it in which the devices waited for this host to give them the step."""

    def word(self) -> str:
        """For the other hosts."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, word: str) -> Self:
        return cls(**json.loads(word))


@dataclass(frozen=True)
class Comparison:
    """All hosts side by side."""

    hosts: int
    deviation_seconds: float
    """Standard deviation over the hosts of their mean step time."""
    slowest: str
    """Host with the most time of its own."""
    slowest_seconds: float
    median_seconds: float
    straggles: bool


def compare(paces: Sequence[Pace]) -> Comparison:
    """The hosts' paces, which are at least one."""
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
