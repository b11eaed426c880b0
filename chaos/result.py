"""What a trial came to, as a file keeps it.

Owns the form of `results.json` and how an entry's demands are said in words. Pure.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pydantic import TypeAdapter

from chaos.fault import Expected
from workloads.spec.base import Spec


class Result(Spec):
    """One fault and what came of it; times in seconds since the epoch."""

    fault: str
    what: str
    """What happened, as a person would say it."""
    demanded: str
    """What had to hold."""
    broken: tuple[str, ...]
    """What did not; empty: all held."""
    ended_as: str
    """State of the JobSet at the end."""
    endings: tuple[str, ...]
    """How each start ended, the first one first."""
    told: str
    """Host and cause of the first failure record; empty: there is none."""
    charged: int
    """Restarts that counted toward `max_restarts`."""
    lost_steps: int
    recovery_seconds: float | None
    began: float
    struck: float
    ended: float
    commit: str
    """Of the sources, with a mark if they were changed."""
    curve: tuple[tuple[tuple[float, float], ...], ...]
    """Start by start: time and loss of each step."""

    @property
    def holds(self) -> bool:
        """Whether all held that had to."""
        return not self.broken


class Strike(Spec):
    """One of many faults on one job."""

    fault: str
    time: float
    """Seconds since the epoch."""


class LongRun(Spec):
    """A job under random faults."""

    seed: int
    strikes: tuple[Strike, ...]
    spent: Mapping[str, float]
    """Seconds by cause, as the job's ledger tells."""
    result: Result

    @property
    def steps(self) -> int:
        """Steps that count: each of them once."""
        return sum(len(start) for start in self.result.curve) - self.result.lost_steps


def in_a_row(results: Iterable[Result]) -> Iterator[Result]:
    """The results as if each trial had begun when the one before had ended: a report may be of several runs."""
    ended: float | None = None
    for result in results:
        later = 0.0 if ended is None else ended - result.began
        ended = result.ended + later
        yield result.model_copy(
            update={
                "began": result.began + later,
                "struck": result.struck + later,
                "ended": ended,
                "curve": tuple(tuple((time + later, loss) for time, loss in start) for start in result.curve),
            }
        )


_RESULTS: TypeAdapter[tuple[Result, ...]] = TypeAdapter(tuple[Result, ...])


def to_json(results: Sequence[Result]) -> str:
    """The results as a file holds them."""
    return _RESULTS.dump_json(tuple(results), indent=1).decode() + "\n"


def from_json(text: str) -> tuple[Result, ...]:
    """The results in a file.

    Raises:
        ValidationError: the file holds something else.
    """
    return _RESULTS.validate_json(text)


def demanded(expected: Expected, save_every: int) -> str:
    """What an entry demands, in words."""
    most = save_every if expected.lost_steps is None else expected.lost_steps
    words = [
        expected.terminal,
        f"{expected.starts} {'start' if expected.starts == 1 else 'starts'}",
        f"{expected.charged} counted",
        f"at most {most} steps again" if most else "no step again",
    ]
    if expected.endings:
        words.append(f"first ends as {' or '.join(sorted(expected.endings))}")
    if expected.culprit:
        words.append(f"record of {expected.culprit}" + (f" says {expected.cause!r}" if expected.cause else ""))
    words += [f"told: {text!r}" for text in (expected.warning, expected.said, expected.event) if text]
    words += [f"step {step} skipped" for step in sorted(expected.skipped)]
    tolerance = expected.loss_tolerance
    if expected.spoiled_from is not None:
        words.append(f"losses from step {expected.spoiled_from} on put right")
    if expected.same_data:
        words.append(f"losses within {tolerance:g}" if tolerance else "same losses bit for bit")
    return ", ".join(words)
