"""What was observed of a job with a fault, and which checks failed. Pure."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

from infra.cluster.job_pods import restarts_counted
from multislice_run.records.lines import FailureRecord
from multislice_run.worlds import World
from tests.chain.stack import SAVE_EVERY
from tests.faults.fault import LEADER, SUSPENDED, Expected
from workloads.report.goodput import lost_steps
from workloads.report.history import AttemptHistory, History
from workloads.spec import ExitCode


@dataclass(frozen=True)
class Observed:
    """A job that has ended, or whose end is no longer awaited. The defaults are those of an unreachable job."""

    terminal: str = "unknown"
    charged: int = 0
    """Restarts that counted toward `max_restarts`."""
    endings: tuple[str, ...] = ()
    """Ending of each attempt, the first one first."""
    failures: tuple[FailureRecord, ...] = ()
    """Failure records of its hosts, including attempts that opened no run."""
    losses: Mapping[int, float] = field(default_factory=dict[int, float])
    """Losses by step, of the steps that count."""
    disagreements: Mapping[int, tuple[float, float]] = field(default_factory=dict[int, tuple[float, float]])
    """Both losses of steps that were done twice with different losses, by step."""
    batches: tuple[int, ...] = ()
    """Batch numbers of the steps that count, in the order of the steps."""
    lost_steps: int = 0
    skipped: frozenset[int] = frozenset()
    """Steps that changed nothing because their loss or gradient was not finite."""
    lines: tuple[str, ...] = ()
    """Lines of all ledgers, as JSON."""
    conditions: tuple[str, ...] = ()
    """Messages of the conditions of the JobSet and its Workload."""
    events: tuple[str, ...] = ()
    """Messages of the events of the JobSet, its Jobs and its pods."""
    recovery_seconds: float | None = None
    """Seconds from the strike to a step beyond all steps before it took effect. None if there was no such step."""


def observe(
    status: Mapping[str, Any], world: World | None, history: History, batches: Mapping[int, int], struck: float
) -> Observed:
    """Return the facts of a job from the status of its JobSet and the history of its run, without its messages.

    `world` is the newest attempt that its pods have agreed on.
    `batches` maps steps to batch numbers of the newest attempt; `struck` is the time of the strike in seconds since the
    epoch.
    """
    starts = history.starts
    losses, disagreements = _losses(starts)
    skipped = {
        (start.number, place): step.step for start in starts for place, step in enumerate(start.steps) if step.skipped
    }
    events = [event for start in starts for ledger in start.ledgers.values() for event in ledger]
    suspended = {"type": SUSPENDED, "status": "True"}.items()
    held = any(suspended <= condition.items() for condition in status.get("conditions", ()))
    return Observed(
        terminal=str(status.get("terminalState", SUSPENDED if held else "running")),
        charged=restarts_counted(status) + (world.counted if world else 0),
        endings=tuple(start.ending for start in starts),
        losses=losses,
        disagreements=disagreements,
        batches=tuple(batches[step] for step in sorted(batches)),
        lost_steps=len(lost_steps(starts).keys() - skipped.keys()),
        skipped=frozenset(skipped.values()),
        lines=tuple(json.dumps({"event": event.name, **event.facts}) for event in events),
        recovery_seconds=recovery(starts, struck),
    )


def _losses(starts: tuple[AttemptHistory, ...]) -> tuple[dict[int, float], dict[int, tuple[float, float]]]:
    found: dict[int, float] = {}
    disagreements: dict[int, tuple[float, float]] = {}
    for step in (step for start in starts for step in start.steps if not step.skipped and step.loss is not None):
        known = found.setdefault(step.step, step.loss or 0.0)
        if known != step.loss:
            disagreements[step.step] = known, step.loss or 0.0
        found[step.step] = step.loss or 0.0
    return found, disagreements


def recovery(starts: Sequence[AttemptHistory], struck: float) -> float | None:
    """Return the seconds from a strike to a step beyond all before it took effect. None if there was no such step."""
    struck_ones = [place for place, start in enumerate(starts) if any(step.time <= struck for step in start.steps)]
    first_after = max(struck_ones, default=-1) + 1
    # A start may do some more steps before the strike takes effect; only the next attempt shows that the job recovered.
    since = starts[first_after].began[0] if first_after < len(starts) else struck
    steps = [step for start in starts for step in start.steps]
    before = max((step.step for step in steps if step.time <= since), default=0)
    after = [step.time for step in steps if step.time > since and step.step > before]
    return min(after) - struck if after else None


def broken(job: str, expected: Expected, observed: Observed, steady: Mapping[int, float]) -> tuple[str, ...]:
    """Return a sentence for each failed check. `steady` are the losses by step of the same job without a fault."""
    return (
        *_endings(expected, observed),
        *_record(job, expected, observed),
        *_messages(job, expected, observed),
        *_work(expected, observed),
        *_wrong_losses(expected, observed, steady),
    )


def _endings(expected: Expected, observed: Observed) -> Iterator[str]:
    if observed.terminal != expected.terminal:
        yield f"expected the JobSet {expected.terminal}, got {observed.terminal}"
    if len(observed.endings) != expected.starts:
        yield f"expected {expected.starts} starts, got {len(observed.endings)}"
    if expected.endings and not (observed.endings and observed.endings[0] in expected.endings):
        got = observed.endings[0] if observed.endings else "no start"
        yield f"expected the struck start to end as {' or '.join(sorted(expected.endings))}, got {got}"
    done = expected.terminal != "Completed" or observed.endings[-1:] == (ExitCode.DONE.name,)
    if len(observed.endings) == expected.starts and not done:
        yield f"expected the last start to end as {ExitCode.DONE.name}, got {observed.endings[-1]}"
    if observed.charged != expected.charged:
        yield f"expected {expected.charged} restarts that count, got {observed.charged}"


def _record(job: str, expected: Expected, observed: Observed) -> Iterator[str]:
    if expected.culprit is None:
        if observed.failures and expected.cause is None and not expected.endings:
            yield f"expected no failure record, got {observed.failures[0].host}: {observed.failures[0].cause}"
        return
    culprit = f"{job}-{expected.culprit}"
    cause = _of(job, expected.cause)
    records = [failure for failure in observed.failures if failure.host.startswith(culprit)]
    if not records:
        yield f"expected a failure record of {culprit}, got {[f.host for f in observed.failures] or 'none'}"
    elif cause and not any(cause in failure.cause for failure in records):
        yield f"expected the cause to say {cause!r}, got {records[0].cause!r}"


def _messages(job: str, expected: Expected, observed: Observed) -> Iterator[str]:
    warning = _of(job, expected.warning)
    if warning and not any(warning in line for line in observed.lines):
        yield f"expected a line of a ledger with {warning!r}, got none"
    event = event_of_kill(job, expected.killed)
    if expected.killed and not any(re.search(event, message) for message in observed.events):
        yield f"expected an event that says {event!r}, got {list(observed.events)}"
    if expected.condition and not any(expected.condition in message for message in observed.conditions):
        yield f"expected a condition to say {expected.condition!r}, got {list(observed.conditions)}"


def _of(job: str, text: str | None) -> str | None:
    return text and text.replace("{job}", job)


def event_of_kill(job: str, hosts: Sequence[str]) -> str:
    """Regular expression of the event that names a killed host.

    JAX's coordination service ends with the leader, and all other hosts abort (134) in the same moment. The event then
    names whichever host the Job's controller looks at first.
    """
    killed = rf"{job}-({'|'.join(hosts)})-\S+ failed with exit code 137"
    return rf"{killed}|{job}-slice-\S+ failed with exit code 134" if LEADER in hosts else killed


def _work(expected: Expected, observed: Observed) -> Iterator[str]:
    most = SAVE_EVERY if expected.lost_steps is None else expected.lost_steps
    if observed.lost_steps > most:
        yield f"expected at most {most} steps to be done again, got {observed.lost_steps}"
    if observed.batches != tuple(range(len(observed.batches))):
        yield f"expected the batches 0, 1, 2, ... without gap or repetition, got {observed.batches}"
    if expected.terminal == "Completed":
        if observed.recovery_seconds is None:
            yield "expected training to go on, got no further step"
        elif observed.recovery_seconds > expected.recovery_seconds:
            got = f"{observed.recovery_seconds:.0f}"
            yield f"expected training to go on within {expected.recovery_seconds:.0f} s, got {got} s"


def _wrong_losses(expected: Expected, observed: Observed, steady: Mapping[int, float]) -> Iterator[str]:
    whole = inf if expected.spoiled_from is None else expected.spoiled_from
    twice = [
        f"step {step} was {first!r}, then {then!r}"
        for step, (first, then) in sorted(observed.disagreements.items())
        if step < whole and abs(then - first) > expected.loss_tolerance * abs(first)
    ]
    yield from (f"expected steps done twice to agree, got {text}" for text in twice[:3])
    if expected.spoiled_from is not None and len(twice) == len(observed.disagreements):
        yield f"expected losses from step {expected.spoiled_from} on to be put right, got none that were wrong"
    if observed.skipped != expected.skipped:
        yield f"expected the skipped steps {sorted(expected.skipped)}, got {sorted(observed.skipped)}"
    if expected.terminal == "Completed" and set(observed.losses) | expected.skipped != set(steady):
        yield f"expected losses of {len(steady) - len(expected.skipped)} steps, got {len(observed.losses)}"
    for step in sorted(set(observed.losses) & set(steady)) if expected.same_data else ():
        want, got = steady[step], observed.losses[step]
        tolerance = expected.loss_tolerance if step >= min(expected.skipped, default=0) else 0.0
        if abs(got - want) > tolerance * abs(want):
            yield f"expected the loss {want!r} at step {step}, got {got!r}"
            return
