"""A run's curves: loss, throughput, and how its hosts keep pace.

Owns which facts of the history are drawn, and where starts and faults are marked.
"""

from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from statistics import median

from workloads.report.chart import Bar, Line, Mark, Point, bars, line_chart
from workloads.report.goodput import lost_steps
from workloads.report.history import Event, History, Step
from workloads.report.mesh_text import counted

HOSTS_SHOWN = 12

MARKS_SHOWN = 40
"""Of more faults the first ones are marked."""

STRAGGLING_SHARE = 0.1
"""As the trainer has it: a host is named whose own time exceeds the median host's by this share of a step."""


def loss_chart(history: History) -> str:
    """Training and held-out loss."""
    found = {
        int(event.facts["step"]): float(event.facts["loss"])
        for start in history.starts
        for event in start.leader
        if event.name == "Evaluation" and isfinite(event.facts["loss"])
    }
    held_out = [(float(step), loss) for step, loss in sorted(found.items())]
    kept, lost = _pieces(history, lambda step: step.loss)
    lines = [
        Line("lost steps", "lost", lost),
        Line("loss", "c1", kept),
        Line("held-out loss", "c2", [held_out] if held_out else [], dots=True),
    ]
    return line_chart("Loss", "step", lines, [*_restarts(history), *_faults(history)])


def throughput_chart(history: History) -> str:
    """Tokens per second."""
    kept, _ = _pieces(history, lambda step: step.tokens_per_second)
    return line_chart("Throughput in tokens per second", "step", [Line("tokens/s", "c1", kept)], _restarts(history))


def utilisation_chart(history: History) -> str | None:
    """MFU, where the chips have a rated peak."""
    kept, _ = _pieces(history, lambda step: None if step.mfu is None else 100 * step.mfu)
    if not any(kept):
        return None
    return line_chart("MFU in percent", "step", [Line("MFU", "c1", kept)], _restarts(history))


def hosts_chart(history: History) -> tuple[str, str] | None:
    """What keeps the devices waiting on each host, and in a sentence which host stands out."""
    paces = _latest_paces(history)
    if not paces:
        return None
    own = {host: float(pace.facts["host_seconds"]) for host, pace in paces.items()}
    usual = median(own.values())
    slowest = max(own, key=lambda host: own[host])
    step_seconds = float(paces[slowest].facts["step_seconds"])
    straggles = own[slowest] - usual > STRAGGLING_SHARE * step_seconds
    shown = sorted(own, key=lambda host: -own[host])[:HOSTS_SHOWN]
    rows = [_host_bar(host, paces[host], usual, straggles and host == slowest) for host in shown]
    words = f"median host {1000 * usual:.1f} ms of its own a step"
    if straggles:
        words = f"{slowest} keeps the others waiting, {1000 * own[slowest]:.1f} ms a step; {words}"
    if len(own) > HOSTS_SHOWN:
        words += f"; the slowest {HOSTS_SHOWN} of {counted(len(own), 'host')} are shown"
    return bars("Time of each host before its step is on the devices", rows), words


def _host_bar(host: str, pace: Event, usual: float, straggler: bool) -> Bar:
    own, step_seconds = float(pace.facts["host_seconds"]), float(pace.facts["step_seconds"])
    words = f"{1000 * own:.1f} ms ({1000 * (own - usual):+.1f} ms) of {1000 * step_seconds:.0f} ms a step"
    return Bar(host, own, words, "fill-bad" if straggler else "fill-1")


def _latest_paces(history: History) -> dict[str, Event]:
    """Each host's means over its last steps, of the newest start that has any."""
    for start in reversed(history.starts):
        events = [event for ledger in start.ledgers.values() for event in ledger if event.name == "pace"]
        if events:
            return {str(event.facts["host"]): event for event in sorted(events, key=lambda event: event.time)}
    return {}


def _pieces(history: History, value: Callable[[Step], float | None]) -> tuple[list[list[Point]], list[list[Point]]]:
    """The steps that count and those that trained nothing, cut where steps follow without a value."""
    lost = lost_steps(history.starts)
    kept: list[list[Point]] = []
    again: list[list[Point]] = []
    for start in history.starts:
        for place, step in enumerate(start.steps):
            found = value(step)
            if found is None:
                continue
            pieces = again if (start.number, place) in lost else kept
            if not pieces or pieces[-1][-1][0] != step.step - 1:
                pieces.append([])
            pieces[-1].append((float(step.step), float(found)))
    return kept, again


def _restarts(history: History) -> Sequence[Mark]:
    return [*_each_restart(history)]


def _each_restart(history: History) -> Iterator[Mark]:
    for before, start in zip(history.starts, history.starts[1:], strict=False):
        resumed = start.last("RunStarted")
        step = float(resumed.facts["step"]) if resumed else (before.steps[-1].step if before.steps else 0.0)
        yield Mark(
            float(step), f"start {start.number} at step {step:g}, after {before.ending} {before.cause}", "restart"
        )


def _faults(history: History) -> Sequence[Mark]:
    found = [
        Mark(float(step.step), f"step {step.step} skipped: its loss or gradient is not finite", "fault")
        for start in history.starts
        for step in start.steps
        if step.skipped
    ]
    found += [
        Mark(float(event.facts["step"]), f"checkpoint at step {event.facts['step']} could not be used", "fault")
        for start in history.starts
        for event in start.leader
        if event.name == "CheckpointSkipped"
    ]
    return found[:MARKS_SHOWN]
