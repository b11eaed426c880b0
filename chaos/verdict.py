"""Whether what was observed is what a fault's entry says must hold.

Owns the comparison, one sentence for each thing that does not hold. Pure.
"""

import re
from collections.abc import Iterator, Mapping
from math import inf

from chaos.fault import Expected
from chaos.observed import Observed
from workloads.spec import ExitCode


def broken(expected: Expected, observed: Observed, steady: Mapping[int, float], save_every: int) -> tuple[str, ...]:
    """What does not hold; nothing if all does.

    `steady` are the losses by step of the same job when nothing strikes it.
    """
    return tuple(
        [
            *_endings(expected, observed),
            *_restarts(expected, observed),
            *_record(expected, observed),
            *_told(expected, observed),
            *_work(expected, observed, save_every),
            *_losses(expected, observed, steady),
        ]
    )


def _endings(expected: Expected, observed: Observed) -> Iterator[str]:
    if observed.terminal != expected.terminal:
        yield f"expected the JobSet {expected.terminal}, got {observed.terminal}"
    if len(observed.endings) != expected.starts:
        yield f"expected {expected.starts} starts, got {len(observed.endings)}"
    if expected.endings and not (observed.endings and observed.endings[0] in expected.endings):
        got = observed.endings[0] if observed.endings else "no start"
        yield f"expected the struck start to end as {' or '.join(sorted(expected.endings))}, got {got}"
    if len(observed.endings) == expected.starts and not _done(expected, observed):
        yield f"expected the last start to end as {ExitCode.DONE.name}, got {observed.endings[-1]}"


def _done(expected: Expected, observed: Observed) -> bool:
    return expected.terminal != "Completed" or observed.endings[-1:] == (ExitCode.DONE.name,)


def _restarts(expected: Expected, observed: Observed) -> Iterator[str]:
    if observed.charged != expected.charged:
        yield f"expected {expected.charged} restarts that count, got {observed.charged}"


def _record(expected: Expected, observed: Observed) -> Iterator[str]:
    if expected.culprit is None:
        if observed.failures and expected.cause is None and not expected.endings:
            yield f"expected no failure record, got {observed.failures[0].host}: {observed.failures[0].cause}"
        return
    told = [failure for failure in observed.failures if failure.host.startswith(expected.culprit)]
    if not told:
        yield f"expected a failure record of {expected.culprit}, got {[f.host for f in observed.failures] or 'none'}"
    elif expected.cause and not any(expected.cause in failure.cause for failure in told):
        yield f"expected the cause to say {expected.cause!r}, got {told[0].cause!r}"


def _told(expected: Expected, observed: Observed) -> Iterator[str]:
    if expected.warning and not any(expected.warning in line for line in observed.lines):
        yield f"expected a line of a ledger with {expected.warning!r}, got none"
    if expected.event and not any(re.search(expected.event, message) for message in observed.events):
        yield f"expected an event that says {expected.event!r}, got {list(observed.events)}"
    if expected.said and not any(expected.said in message for message in observed.said):
        yield f"expected a condition to say {expected.said!r}, got {list(observed.said)}"


def _work(expected: Expected, observed: Observed, save_every: int) -> Iterator[str]:
    most = save_every if expected.lost_steps is None else expected.lost_steps
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


def _losses(expected: Expected, observed: Observed, steady: Mapping[int, float]) -> Iterator[str]:
    whole = inf if expected.spoiled_from is None else expected.spoiled_from
    twice = [said for step, said in sorted(observed.disagreements.items()) if step < whole]
    yield from (f"expected steps done twice to agree, got {said}" for said in twice[:3])
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
