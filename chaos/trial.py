"""One fault carried out: submit, wait, strike, wait, judge.

Owns the order of these. A trial that breaks off is judged too: what broke it off is what does not hold.
"""

import subprocess
import time
from collections.abc import Callable, Mapping

from chaos.fault import SUSPENDED, Fault
from chaos.field import SAVE_EVERY, STEADY, Field
from chaos.observed import UNSEEN, Observed
from chaos.result import Result, demanded
from chaos.verdict import broken
from sandbox.daemon import CHECKOUT


def carry_out(field: Field, fault: Fault) -> Result:
    """Strike a job of its own with `fault` and see it to its end; the job is removed, its files stay."""
    began = struck = time.time()
    seen, verdict = UNSEEN, ("expected a verdict, got none",)

    def run() -> None:
        nonlocal struck
        field.submit(fault)
        if fault.at_step is not None:
            field.wait_for_step(fault.name, fault.at_step)
        struck = time.time()
        fault.strike(field, fault.name)
        if fault.expected.terminal != SUSPENDED:
            field.wait_for_end(fault.name)

    def judge() -> None:
        nonlocal seen, verdict
        seen = field.observed(fault.name, struck)
        verdict = broken(fault.expected, seen, steady_losses(field), SAVE_EVERY)

    failed = (*tried(run), *tried(judge))
    ended = time.time()
    left = tried(lambda: field.remove(fault.name))
    return result(fault, seen, (*failed, *verdict, *left), (began, struck, ended))


def result(fault: Fault, seen: Observed, verdict: tuple[str, ...], times: tuple[float, float, float]) -> Result:
    """The record of a trial; `times` are its begin, strike and end."""
    first = next(iter(seen.failures), None)
    began, struck, ended = times
    return Result(
        fault=fault.name,
        what=fault.what,
        demanded=demanded(fault.expected, SAVE_EVERY),
        broken=verdict,
        ended_as=seen.terminal,
        endings=seen.endings,
        told=f"{first.host}: {(first.cause.splitlines() or [''])[0]}" if first else "",
        charged=seen.charged,
        lost_steps=seen.lost_steps,
        recovery_seconds=seen.recovery_seconds,
        began=began,
        struck=struck,
        ended=ended,
        commit=_commit(),
        curve=seen.curve,
    )


def steady_losses(field: Field) -> Mapping[int, float]:
    """Losses by step of the job that nothing strikes."""
    return field.observed(STEADY, 0.0).losses


def tried(action: Callable[[], None]) -> tuple[str, ...]:
    """What kept `action` from being done, in words."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 - whatever a strike runs into, the other trials are still to come
        return (f"{type(error).__name__}: {error}",)
    return ()


def _commit() -> str:
    command = ["git", "-C", str(CHECKOUT), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
