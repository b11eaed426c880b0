"""Injects one fault: submit a job, wait, strike, wait, and check the result. Defines the record in the results file."""

import json
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from pydantic import TypeAdapter

from chaos.membership import Membership
from chaos.target import SAVE_EVERY, Fault, Target
from chaos.verdict import SUSPENDED, Observed, broken
from sandbox.daemon import CHECKOUT
from workloads.spec.base import Spec


class SliceFigures(Spec):
    """What was measured of slices that restart one by one."""

    median_step_seconds: float
    """Median time between two steps before the fault."""
    loss_step_seconds: float
    """Time from the last step before a slice was lost to the next one."""
    slowest_step_seconds: float
    """Longest time between two steps until all slices were back."""
    back_seconds: float | None
    """Seconds from the loss until all slices trained together."""
    checkpoint_reads: int
    """Number of reads of a checkpoint's arrays."""

    @classmethod
    def of(cls, seen: Membership) -> Self:
        return cls(
            median_step_seconds=seen.median_seconds,
            loss_step_seconds=seen.loss_seconds,
            slowest_step_seconds=seen.slowest_seconds,
            back_seconds=seen.back_seconds,
            checkpoint_reads=seen.reads,
        )


class Result(Spec):
    """The outcome of one fault. Times are in seconds since the epoch."""

    fault: str
    what: str
    """Description of the fault."""
    broken: tuple[str, ...]
    """Sentences about failed checks. Empty if all checks passed."""
    ended_as: str
    """Terminal state of the JobSet."""
    endings: tuple[str, ...]
    """Ending of each attempt, the first one first."""
    record: str
    """Host and cause of the first failure record; empty if no record exists."""
    charged: int
    """Number of restarts that counted toward `max_restarts`."""
    lost_steps: int
    recovery_seconds: float | None
    began: float
    struck: float
    ended: float
    commit: str
    """Commit of the sources, marked if they were changed."""
    curve: tuple[tuple[tuple[float, float], ...], ...]
    """Time and loss of each step, attempt by attempt."""
    slices: SliceFigures | None = None
    """What was measured of slices that restart one by one."""

    @property
    def holds(self) -> bool:
        """Return whether all checks passed."""
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
    """Seconds by cause, from the job's ledger."""
    result: Result

    @property
    def steps(self) -> int:
        """Return the number of steps that count, without repetitions."""
        return sum(len(start) for start in self.result.curve) - self.result.lost_steps


_RESULTS = TypeAdapter(tuple[Result, ...])
_SHORT_CHARACTERS = 120


def to_json(results: Sequence[Result]) -> str:
    """Return the results as JSON with a line for each, numbers rounded to a thousandth."""
    return f"{_lines(_RESULTS.dump_python(tuple(results), mode='json'), depth=1)}\n"


def long_run_to_json(run: LongRun) -> str:
    """Return a long run as JSON with a line for each strike and each attempt, numbers rounded to a thousandth."""
    return f"{_lines(run.model_dump(mode='json'), depth=3)}\n"


def _lines(value: Any, depth: int) -> str:
    """JSON with a line for each item of the containers down to `depth`, except containers that fit in one line."""
    whole = json.dumps(_round(value), ensure_ascii=False, separators=(",", ":"))
    if depth == 0 or len(whole) <= _SHORT_CHARACTERS or not isinstance(value, dict | list):
        return whole
    inner = depth - 1
    if isinstance(value, list):
        return "[\n" + ",\n".join(_lines(item, inner) for item in value) + "\n]"
    return "{\n" + ",\n".join(f"{json.dumps(key)}:{_lines(item, inner)}" for key, item in value.items()) + "\n}"


def _round(value: Any) -> Any:
    match value:
        case float():
            return round(value, 3)
        case dict():
            return {key: _round(item) for key, item in value.items()}
        case list():
            return [_round(item) for item in value]
        case _:
            return value


def from_json(text: str) -> tuple[Result, ...]:
    """Return the results in a file. Raises ValidationError if it contains something else."""
    return _RESULTS.validate_json(text)


def carry_out(target: Target, fault: Fault) -> Result:
    """Inject `fault` into a new job and wait for its end. The job is removed, and its files are kept."""
    began = struck = time.time()
    seen, verdict = Observed(), ("expected a verdict, got none",)
    steady: Mapping[int, float] = {}

    def run() -> None:
        nonlocal struck, steady
        steady = target.undisturbed(fault)
        target.submit(fault)
        if fault.at_step is not None:
            target.wait_for_step(fault.name, fault.at_step)
        struck = time.time()
        fault.strike(target, fault.name)
        if fault.expected.terminal != SUSPENDED:
            target.wait_for_end(fault.name)

    def judge() -> None:
        nonlocal seen, verdict
        seen = target.observed(fault.name, struck)
        verdict = broken(fault.expected, seen, steady, SAVE_EVERY)

    failed = (*run_action(run), *run_action(judge))
    ended = time.time()
    left = run_action(lambda: target.remove(fault.name))
    return result(fault, seen, (*failed, *verdict, *left), (began, struck, ended))


def result(fault: Fault, seen: Observed, verdict: tuple[str, ...], times: tuple[float, float, float]) -> Result:
    """Return the record of a trial; `times` are its beginning, strike and end."""
    first = next(iter(seen.failures), None)
    began, struck, ended = times
    command = ["git", "-C", str(CHECKOUT), "describe", "--always", "--dirty"]
    commit = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return Result(
        fault=fault.name,
        what=fault.what,
        broken=verdict,
        ended_as=seen.terminal,
        endings=seen.endings,
        record=f"{first.host}: {(first.cause.splitlines() or [''])[0]}" if first else "",
        charged=seen.charged,
        lost_steps=seen.lost_steps,
        recovery_seconds=seen.recovery_seconds,
        began=began,
        struck=struck,
        ended=ended,
        commit=commit,
        curve=seen.curve,
        slices=SliceFigures.of(seen.membership) if seen.membership else None,
    )


def run_action(action: Callable[[], None]) -> tuple[str, ...]:
    """Run `action`. Return a sentence about the error that stopped it, if any."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 - whatever a strike runs into, the other trials are still to come
        return (f"{type(error).__name__}: {error}",)
    return ()
