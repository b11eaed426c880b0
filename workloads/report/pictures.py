"""Draws a run's charts: loss, throughput, MFU, the pace of its hosts and the mesh.

Marks show restarts and faults. The mesh has slices as boxes, hosts inside them, and devices in the colour of their data
shard. Of a large job, only the first and the last parts are shown.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from math import isfinite

from multislice_run.records.events import EventName
from multislice_run.records.lines import Pace, StepLine, parse
from workloads.report.chart import WIDTH, Bar, Line, Mark, Point, bars, element, line_chart, picture, text, title
from workloads.report.goodput import lost_steps
from workloads.report.history import History
from workloads.report.mesh_text import Placement, counted, fixed_and_varying, select
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
        words = f"attempt {start.number + 1} at step {step:g}, after {before.ending} {before.cause}"
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


SLICES_SHOWN = 5

SLICE_HOSTS_SHOWN = 7

DEVICE, GAP, PAD, HEAD = 36, 4, 8, 20

COLOURS = 8
"""Number of series colours of the page. They repeat."""


def mesh_drawing(placement: Placement) -> str:
    """Draw the slices in rows, as many per row as fit."""
    numbers = select(placement.slices.count, SLICES_SHOWN)
    boxes = [None if number is None else _slice(placement, number) for number in numbers]
    wide = max(box[0] for box in boxes if box)
    tall = max(box[1] for box in boxes if box)
    columns = max(1, WIDTH // (wide + 2 * PAD))
    drawn: list[str] = []
    for place, box in enumerate(boxes):
        x, y = (place % columns) * (wide + 2 * PAD), (place // columns) * (tall + 2 * PAD)
        content = box[2] if box else _more(placement.slices.count - SLICES_SHOWN, "slices", wide, tall, "label")
        drawn.append(element("g", content, transform=f"translate({x} {y})"))
    rows = -(-len(boxes) // columns)
    width = min(columns, len(boxes)) * (wide + 2 * PAD)
    described = f"{placement.mesh} over {counted(placement.slices.count, 'slice')}; the table below shows the split"
    return picture("Mesh", f"{described} of each array", max(WIDTH, width), rows * (tall + 2 * PAD), *drawn)


def _more(count: int, noun: str, wide: int, tall: int, style: str) -> str:
    return text(f"{count} {noun} more", wide / 2, tall / 2, class_=style, text_anchor="middle")


def _slice(placement: Placement, number: int) -> tuple[int, int, str]:
    """Return width, height and content."""
    hosts = placement.slice_places(number)
    places = select(len(hosts), SLICE_HOSTS_SHOWN)
    fixed, varying = fixed_and_varying([place for host in hosts for place in host])
    across = min(placement.slices.devices_per_host, 4)
    down = -(-placement.slices.devices_per_host // across)
    wide, tall = across * (DEVICE + GAP) + 2 * PAD - GAP, down * (DEVICE + GAP) + HEAD + PAD - GAP
    columns = min(len(places), max(1, min(4, (WIDTH - 4 * PAD) // (wide + PAD))))
    drawn: list[str] = []
    for place, host in enumerate(places):
        x, y = PAD + (place % columns) * (wide + PAD), HEAD + PAD + (place // columns) * (tall + PAD)
        content = _more(len(hosts) - SLICE_HOSTS_SHOWN, "hosts", wide, tall, "tick")
        if host is not None:
            content = "".join(_host(placement, number, host, hosts[host], varying, (across, wide, tall)))
        drawn.append(element("g", content, transform=f"translate({x} {y})"))
    rows = -(-len(places) // columns)
    width, height = columns * (wide + PAD) + PAD, rows * (tall + PAD) + HEAD + PAD
    named = ", ".join(f"{axis} {at}" for axis, at in fixed.items() if placement.mesh.sizes[axis] > 1)
    frame = element("rect", x=0, y=0, width=width, height=height, rx=6, class_="box")
    head = text(f"slice {number}" + (f": {named}" if named else ""), PAD, HEAD, class_="label strong")
    return width, height, "".join([frame, head, *drawn])


def _host(
    placement: Placement,
    number: int,
    host: int,
    places: list[dict[str, int]],
    varying: list[str],
    sizes: tuple[int, int, int],
) -> Iterator[str]:
    across, wide, tall = sizes
    yield element("rect", x=0, y=0, width=wide, height=tall, rx=4, class_="box inner")
    yield text(f"host {host}", PAD, 15, class_="tick")
    for device, place in enumerate(places):
        x, y = PAD + (device % across) * (DEVICE + GAP), HEAD + (device // across) * (DEVICE + GAP)
        colour = (place["replica"] * placement.mesh.stage + place["stage"]) % COLOURS + 1
        words = ", ".join(f"{axis} {at}" for axis, at in place.items())
        inner = [str(place[axis]) for axis in varying] or ["0"]
        yield element(
            "g",
            title(f"slice {number}, host {host}, device {device}: {words}"),
            element("rect", x=x, y=y, width=DEVICE, height=DEVICE, rx=3, class_=f"device fill-{colour}"),
            text("·".join(inner), x + DEVICE / 2, y + DEVICE / 2 + 4, class_="on-fill", text_anchor="middle"),
        )
