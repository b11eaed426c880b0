"""One fault carried out: submit, wait, strike, wait, judge.

Owns the order of these and the record of a trial.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from chaos.fault import Fault
from chaos.field import SAVE_EVERY, STEADY, Field, NotInTime
from chaos.observed import Observed
from chaos.verdict import broken


@dataclass(frozen=True)
class Trial:
    """A fault and what came of it."""

    fault: Fault
    struck: float
    """Seconds since the epoch."""
    seconds: float
    """From the submission to the end."""
    observed: Observed
    broken: tuple[str, ...]
    """What does not hold; empty: all does."""


def carry_out(field: Field, fault: Fault) -> Trial:
    """Strike a job of its own with `fault` and see it to its end; the job is removed, its files stay."""
    began = time.time()
    struck = began
    late: list[str] = []
    field.submit(fault)
    try:
        if fault.at_step is not None:
            field.wait_for_step(fault.name, fault.at_step)
        struck = time.time()
        fault.strike(field, fault.name)
        field.wait_for_end(fault.name)
    except NotInTime as error:
        late.append(str(error))
    seen = field.observed(fault.name, struck)
    verdict = (*late, *broken(fault.expected, seen, steady_losses(field), SAVE_EVERY))
    seconds = time.time() - began
    field.remove(fault.name)
    return Trial(fault, struck, seconds, seen, verdict)


def steady_losses(field: Field) -> Mapping[int, float]:
    """Losses by step of the job that nothing strikes."""
    return field.observed(STEADY, 0.0).losses
