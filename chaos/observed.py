"""What became of a job, as its JobSet and its files tell.

Owns the reading of both into one value. Pure but for the files.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workloads.report.goodput import lost_steps
from workloads.report.history import Failure, History, Start


@dataclass(frozen=True)
class Observed:
    """A job that has ended, or that nobody waits for any longer."""

    terminal: str
    restarts: int
    charged: int
    """Restarts that counted toward `max_restarts`."""
    endings: tuple[str, ...]
    """How each start ended, the first one first."""
    failures: tuple[Failure, ...]
    losses: Mapping[int, float]
    """By step, of the steps that count."""
    disagreements: tuple[str, ...]
    """Steps that were done twice with different losses."""
    batches: tuple[int, ...]
    """Numbers of the batches that the steps which count took, in the order of the steps."""
    lost_steps: int
    recovery_seconds: float | None
    """From the strike until a step beyond the last one before it; None: there was none."""


def observe(status: Mapping[str, Any], history: History, batches: Mapping[int, int], struck: float) -> Observed:
    """The facts of a job whose JobSet has `status` and whose run has `history`.

    `batches` is by step, the newest start's last; `struck` is the moment of the strike in seconds since the epoch.
    """
    losses, disagreements = _losses(history.starts)
    return Observed(
        terminal=str(status.get("terminalState", "running")),
        restarts=int(status.get("restarts", 0)),
        charged=int(status.get("restartsCountTowardsMax", 0)),
        endings=tuple(start.ending for start in history.starts),
        failures=tuple(failure for start in history.starts for failure in start.failures),
        losses=losses,
        disagreements=disagreements,
        batches=tuple(batches[step] for step in sorted(batches)),
        lost_steps=len(lost_steps(history.starts)),
        recovery_seconds=_recovery(history.starts, struck),
    )


def _losses(starts: tuple[Start, ...]) -> tuple[dict[int, float], tuple[str, ...]]:
    found: dict[int, float] = {}
    disagreements: list[str] = []
    for step in (step for start in starts for step in start.steps if not step.skipped and step.loss is not None):
        known = found.setdefault(step.step, step.loss or 0.0)
        if known != step.loss:
            disagreements.append(f"step {step.step} was {known!r}, then {step.loss!r}")
        found[step.step] = step.loss or 0.0
    return found, tuple(disagreements)


def _recovery(starts: tuple[Start, ...], struck: float) -> float | None:
    steps = [step for start in starts for step in start.steps]
    before = max((step.step for step in steps if step.time <= struck), default=0)
    after = [step.time for step in steps if step.time > struck and step.step > before]
    return min(after) - struck if after else None
