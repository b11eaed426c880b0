"""Draws a run's charts: loss, throughput, MFU and the pace of its hosts.

Marks show restarts and faults.
"""

from collections.abc import Callable
from itertools import pairwise
from math import isfinite

from multislice_run.records.events import EventName
from multislice_run.records.lines import Pace, StepLine
from multislice_run.records.shapes import parse
from workloads.report.chart import Bar, Line, Mark, Point, bars, line_chart
from workloads.report.goodput import lost_steps
from workloads.report.history import History
from workloads.report.mesh_text import counted
from workloads.training.pace import compare

HOSTS_SHOWN = 12

MARKS_SHOWN = 40
"""Number of faults to mark. If there are more, the first ones are marked."""


def loss_chart(history: History) -> str:
    """Draw the training loss and the held-out loss."""
    found = {
        int(event.facts["step"]): float(event.facts["loss"])
        for event in history.events(EventName.EVALUATION)
        if isfinite(event.facts["loss"])
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
    """Draw the tokens per second."""
    kept, _ = _pieces(history, lambda step: step.tokens_per_second)
    lines = [Line("tokens/s", "c1", kept)]
    return line_chart("Throughput in tokens per second", "step", lines, _restarts(history))


def utilisation_chart(history: History) -> str | None:
    """Draw the MFU. `None` if the chips have no rated peak."""
    kept, _ = _pieces(history, lambda step: None if step.mfu is None else 100 * step.mfu)
    if not any(kept):
        return None
    return line_chart("MFU in percent", "step", [Line("MFU", "c1", kept)], _restarts(history))


def hosts_chart(history: History) -> tuple[str, str] | None:
    """Draw how long each host keeps the devices waiting. Return the chart and a sentence about the slowest host."""
    paces = _latest_paces(history)
    if not paces:
        return None
    found = compare(paces)
    straggler = found.slowest if found.straggles else None
    slowest_first = sorted(paces, key=lambda pace: -pace.host_seconds)
    rows = [
        Bar(
            pace.host,
            pace.host_seconds,
            f"{1000 * pace.host_seconds:.1f} ms ({1000 * (pace.host_seconds - found.median_seconds):+.1f} ms)"
            f" of {1000 * pace.step_seconds:.0f} ms a step",
            "fill-bad" if pace.host == straggler else "fill-1",
        )
        for pace in slowest_first[:HOSTS_SHOWN]
    ]
    words = (
        f"median host {1000 * found.median_seconds:.1f} ms of its own a step; mean step times differ by"
        f" {1000 * found.deviation_seconds:.1f} ms (standard deviation)"
    )
    if straggler:
        words = f"{straggler} keeps the others waiting, {1000 * found.slowest_seconds:.1f} ms a step; {words}"
    if len(paces) > HOSTS_SHOWN:
        words += f"; the slowest {HOSTS_SHOWN} of {counted(len(paces), 'host')} are shown"
    return bars("Time of each host before its step is on the devices", rows), words


def _latest_paces(history: History) -> list[Pace]:
    """Return each host's means over its last steps, from the newest attempt that has any."""
    for start in reversed(history.starts):
        latest = [[event for event in ledger if event.name == EventName.PACE][-1:] for ledger in start.ledgers.values()]
        if paces := [parse(Pace, event.facts) for events in latest for event in events]:
            return paces
    return []


def _pieces(history: History, value: Callable[[StepLine], float | None]) -> tuple[list[list[Point]], list[list[Point]]]:
    """Return the productive steps and the steps that trained nothing, each cut where a value is missing."""
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


def _restarts(history: History) -> list[Mark]:
    marks: list[Mark] = []
    for before, start in pairwise(history.starts):
        resumed = start.last(EventName.RUN_STARTED)
        step = float(resumed.facts["step"] if resumed else before.steps[-1].step if before.steps else 0)
        words = f"start {start.number} at step {step:g}, after {before.ending} {before.cause}"
        marks.append(Mark(step, words, "restart"))
    return marks


def _faults(history: History) -> list[Mark]:
    found = [
        Mark(float(step.step), f"step {step.step} skipped: its loss or gradient is not finite or too large", "fault")
        for start in history.starts
        for step in start.steps
        if step.skipped
    ]
    found += [
        Mark(float(event.facts["step"]), f"checkpoint at step {event.facts['step']} could not be used", "fault")
        for event in history.events(EventName.CHECKPOINT_SKIPPED)
    ]
    return found[:MARKS_SHOWN]
