"""What became of a job, as its JobSet and its files tell.

Owns the reading of both into one value. Pure but for the files.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from chaos.fault import SUSPENDED
from workloads.report.goodput import lost_steps
from workloads.report.history import Failure, History, Start


@dataclass(frozen=True)
class Told:
    """What is known of a job beside the files of its run."""

    status: Mapping[str, Any]
    """Of its JobSet."""
    said: tuple[str, ...] = ()
    events: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    """Records of its hosts, those of starts that came to no run among them."""


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
    curve: tuple[tuple[tuple[float, float], ...], ...]
    """Start by start: seconds since the epoch and loss of each step that was done, lost ones too."""
    disagreements: Mapping[int, str]
    """By step that was done twice with different losses: both of them, in words."""
    batches: tuple[int, ...]
    """Numbers of the batches that the steps which count took, in the order of the steps."""
    lost_steps: int
    skipped: frozenset[int]
    """Steps that changed nothing, since their loss or gradient is not finite."""
    lines: tuple[str, ...]
    """Of all ledgers, as JSON."""
    said: tuple[str, ...]
    """Messages of the conditions of the JobSet and its Workload."""
    events: tuple[str, ...]
    """Messages of the events of the JobSet, its Jobs and its pods."""
    recovery_seconds: float | None
    """From the strike until a step beyond all that was done before it took effect; None: there was none."""


UNSEEN = Observed(
    terminal="unknown",
    restarts=0,
    charged=0,
    endings=(),
    failures=(),
    losses={},
    curve=(),
    disagreements={},
    batches=(),
    lost_steps=0,
    skipped=frozenset(),
    lines=(),
    said=(),
    events=(),
    recovery_seconds=None,
)
"""Of a job that nobody could ask about."""


def observe(cluster: Told, history: History, batches: Mapping[int, int], struck: float) -> Observed:
    """The facts of a job of which the cluster tells `cluster` and whose run has `history`.

    `batches` is by step, the newest start's last; `struck` is the moment of the strike in seconds since the epoch.
    """
    losses, disagreements = _losses(history.starts)
    return Observed(
        terminal=_terminal(cluster.status),
        restarts=int(cluster.status.get("restarts", 0)),
        charged=int(cluster.status.get("restartsCountTowardsMax", 0)),
        endings=tuple(start.ending for start in history.starts),
        failures=cluster.failures,
        losses=losses,
        curve=tuple(_curve(start) for start in history.starts),
        disagreements=disagreements,
        batches=tuple(batches[step] for step in sorted(batches)),
        lost_steps=len(lost_steps(history.starts).keys() - _skipped_places(history.starts)),
        skipped=frozenset(step.step for start in history.starts for step in start.steps if step.skipped),
        lines=tuple(_lines(history.starts)),
        said=cluster.said,
        events=cluster.events,
        recovery_seconds=_recovery(history.starts, struck),
    )


def _curve(start: Start) -> tuple[tuple[float, float], ...]:
    return tuple((step.time, step.loss) for step in start.steps if step.loss is not None)


def _terminal(status: Mapping[str, Any]) -> str:
    suspended = {"type": SUSPENDED, "status": "True"}.items()
    held = any(suspended <= condition.items() for condition in status.get("conditions", ()))
    return str(status.get("terminalState", SUSPENDED if held else "running"))


def _skipped_places(starts: tuple[Start, ...]) -> set[tuple[int, int]]:
    return {(start.number, place) for start in starts for place, step in enumerate(start.steps) if step.skipped}


def _lines(starts: tuple[Start, ...]) -> Iterator[str]:
    for event in (event for start in starts for ledger in start.ledgers.values() for event in ledger):
        yield json.dumps({"event": event.name, **event.facts})


def _losses(starts: tuple[Start, ...]) -> tuple[dict[int, float], dict[int, str]]:
    found: dict[int, float] = {}
    disagreements: dict[int, str] = {}
    for step in (step for start in starts for step in start.steps if not step.skipped and step.loss is not None):
        known = found.setdefault(step.step, step.loss or 0.0)
        if known != step.loss:
            disagreements[step.step] = f"step {step.step} was {known!r}, then {step.loss!r}"
        found[step.step] = step.loss or 0.0
    return found, disagreements


def _recovery(starts: tuple[Start, ...], struck: float) -> float | None:
    struck_ones = [place for place, start in enumerate(starts) if any(step.time <= struck for step in start.steps)]
    first_after = max(struck_ones, default=-1) + 1
    # A start may do some more steps before the strike takes effect; only the next one tells that it is overcome.
    since = starts[first_after].began[0] if first_after < len(starts) else struck
    steps = [step for start in starts for step in start.steps]
    before = max((step.step for step in steps if step.time <= since), default=0)
    after = [step.time for step in steps if step.time > since and step.step > before]
    return min(after) - struck if after else None
