"""Writes the report of a run as one HTML file without other resources, also while the job runs.

Tables are in `tables`; pictures are in `pictures`, by `chart`.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from itertools import chain
from statistics import median
from typing import Any

from multislice_run.records.events import EventName
from workloads.report.chart import Bar, amount, element, long_bar, style_sheet
from workloads.report.goodput import Cause, Goodput, Spent, goodput, lost_steps
from workloads.report.history import LAST, AttemptHistory, History
from workloads.report.mesh_text import Placement, fixed_and_varying, size_text
from workloads.report.pictures import hosts_chart, loss_chart, mesh_drawing, throughput_chart, utilisation_chart
from workloads.report.tables import by_cause, by_fault, dollars, duration, notes, shown
from workloads.report.training import summarize_training
from workloads.spec import ExitCode

STYLES = {
    Cause.PRODUCTIVE: "fill-1",
    Cause.INPUT: "fill-2",
    Cause.LOST: "fill-bad",
    Cause.SAVE: "fill-4",
    Cause.COMPARE: "fill-7",
    Cause.EVALUATION: "fill-3",
    Cause.COMPILE: "fill-6",
    Cause.RESTORE: "fill-7",
    Cause.START: "fill-8",
    Cause.WAITING: "fill-8",
    Cause.HUNG: "fill-5",
    Cause.DOWN: "fill-idle",
    Cause.OTHER: "fill-idle",
}


_CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_MAX_EVENTS = 50


def page(history: History, refresh_seconds: int | None = None) -> str:
    """Return the whole file. A browser reads it again every `refresh_seconds`; `None`: never."""
    spent, title = goodput(history.attempts), f"{history.job}: run {history.folder.name}"
    return document(title, chain(_heading(title, history, spent), _sections(history, spent)), refresh_seconds)


def document(title: str, parts: Iterable[str], refresh_seconds: int | None = None) -> str:
    """Return a file with these parts, which are already markup, as `page` does."""
    head = element("title", escape(title)) + '<meta name="viewport" content="width=device-width">'
    # The page runs no scripts and loads nothing.
    head += f'<meta http-equiv="Content-Security-Policy" content="{_CONTENT_POLICY}">'
    if refresh_seconds is not None:
        head += f'<meta http-equiv="refresh" content="{refresh_seconds}">'
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">{head}<style>\n{style_sheet()}</style></head>'
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def section(name: str, *content: str) -> str:
    """Return a section with a heading. Its content is already markup."""
    return element("section", element("h2", escape(name)), *content)


def tiles(shown: Iterable[tuple[str, str]]) -> str:
    """Return names and values as a row of boxes."""
    boxes = [element("div", element("dt", escape(name)), element("dd", escape(value))) for name, value in shown]
    return element("dl", *boxes, class_="tiles")


def quiet(words: str) -> str:
    """Return a paragraph that explains something."""
    return element("p", escape(words), class_="quiet")


def _sections(history: History, spent: Goodput) -> Iterator[str]:
    yield section("Where the time went", *_goodput(spent))
    yield section(
        "Loss",
        loss_chart(history),
        quiet("Vertical lines mark restarts and faults. Lost steps were repeated or skipped."),
    )
    yield section("Throughput in tokens per second", throughput_chart(history))
    if utilisation := utilisation_chart(history):
        yield section("MFU in percent", utilisation)
    if hosts := hosts_chart(history):
        yield section("Hosts", quiet(hosts[1]), hosts[0])
    yield section("Attempts", *_starts(history, spent))
    if history.placement:
        yield section("Mesh", *_mesh(history.placement))
    yield section("What ran", *_manifest(history.manifest))
    yield from _events(history)
    if history.notes:
        yield section("What could not be read", *(element("p", escape(note)) for note in history.notes))


def _heading(heading: str, history: History, spent: Goodput) -> Iterator[str]:
    yield element("h1", escape(heading))
    newest = history.attempts[-1] if history.attempts else None
    if newest:
        failed = newest.ending not in (ExitCode.DONE.name, LAST)
        ending = "finished" if newest.ending == ExitCode.DONE.name else newest.ending
        facts = ", ".join(filter(None, (_progress(history), _clock(newest.ended))))
        cause = f"{newest.cause}{'. The restarts are used up.' if history.used_up else ''}"
        yield element("p", escape(f"{ending}: {facts}. {cause}"), class_="bad" if failed else "quiet")
    else:
        yield element("p", "No attempt has left a ledger.", class_="bad")
    yield tiles(_tiles(history, spent))


def _tiles(history: History, spent: Goodput) -> Iterator[tuple[str, str]]:
    training = summarize_training(history)
    yield "step", _progress(history).removeprefix("step ") or "none"
    yield "loss", "none" if training.loss is None else amount(training.loss)
    yield "cost", dollars(spent.usd)
    yield "goodput", f"{100 * spent.productive:.1f} %"
    yield "restarts", str(max(0, len(history.attempts) - 1))
    saved, at = training.checkpoint_step, training.checkpoint_at
    yield "last save", "none" if saved is None or at is None else f"step {saved:,}, {_clock(at)}"
    yield "wall time", duration(spent.seconds)
    yield "held-out loss", "none" if training.held_out_loss is None else amount(training.held_out_loss)
    steps = [step for start in history.starts for step in start.steps]
    rates = [step.tokens_per_second for step in steps if step.tokens_per_second is not None]
    yield "median tokens/s", amount(median(rates)) if rates else "none"
    if used := [step.mfu for step in steps if step.mfu is not None]:
        yield "median MFU", f"{100 * median(used):.1f} %"
    if peaks := [step.peak_bytes for step in steps if step.peak_bytes]:
        yield "peak memory of a device", size_text(max(peaks))


def _progress(history: History) -> str:
    running = bool(history.attempts) and history.attempts[-1].ending == LAST
    return summarize_training(history).words(running=running)


def _events(history: History) -> Iterator[str]:
    """Yield the leader's newest events, which a reader has to unfold."""
    newest = [event for start in history.starts for event in start.leader][: -_MAX_EVENTS - 1 : -1]
    if newest:
        rows = [(_clock(each.time), escape(each.name), escape(json.dumps(each.facts))) for each in newest]
        yield element("details", element("summary", "Events"), table(("time", "event", "facts"), rows))


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _goodput(spent: Goodput) -> Iterator[str]:
    if not spent.parts:
        yield quiet("Nothing recorded.")
        return
    yield _bar("Goodput by cause", spent)
    found = by_cause("", spent)
    swatches = [element("span", class_=f"swatch {STYLES[part.cause]}") for part in spent.parts]
    rows = [(swatch + escape(row[0]), *row[1:]) for swatch, row in zip([*swatches, ""], found.rows, strict=True)]
    yield table(found.columns, rows, numbers=range(1, len(found.columns)))
    if spent.losses:
        faults = by_fault(spent.losses)
        yield element("h3", escape(faults.title))
        yield table(faults.columns, [[*map(escape, row)] for row in faults.rows], range(1, len(faults.columns)))
    for note in notes(spent):
        yield quiet(note)


def _bar(name: str, spent: Spent) -> str:
    """Draw the parts side by side. Each shows its numbers under the pointer."""
    # The last row is the total.
    rows = zip(spent.parts, by_cause("", spent).rows, strict=False)
    parts = [Bar(row[0], part.seconds, f"{row[0]}: {', '.join(row[1:])}", STYLES[part.cause]) for part, row in rows]
    return long_bar(name, parts)


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Return a table. The cells are already markup; the columns `numbers` are aligned right."""

    def row(kind: str, cells: Sequence[str]) -> str:
        aligned = [{"class_": "number"} if column in numbers else {} for column in range(len(cells))]
        return element("tr", *(element(kind, cell, **given) for cell, given in zip(cells, aligned, strict=True)))

    head = element("thead", row("th", titles))
    body = element("tbody", *(row("td", cells) for cells in rows))
    return element("div", element("table", head, body), class_="scroll")


def _starts(history: History, spent: Goodput) -> Iterator[str]:
    if not history.attempts:
        yield quiet("None.")
        return
    lost = Counter(number for number, _ in lost_steps(history.starts))
    titles = ("attempt", "began", "lasted", "attention", "computed in", "steps", "lost", "ended", "cause")
    yield table(
        titles,
        [_start_row(start, lost[start.number] if start.opened else 0) for start in history.attempts],
        numbers=(2, 6),
    )
    for start in shown(spent):
        yield quiet(f"{start.name}: {duration(start.seconds)}, {dollars(start.usd)}, then {start.ending}")
        yield _bar(f"{start.name} by cause", start)


def _start_row(start: AttemptHistory, lost: int) -> Sequence[str]:
    began = datetime.fromtimestamp(start.began[0], UTC).strftime("%Y-%m-%d %H:%M:%S")
    steps = f"{start.steps[0].step} to {start.steps[-1].step}" if start.steps else "none"
    if start.restored_locally:
        steps += ", from the memory of the pods"
    lasted = duration(start.ended - start.began[0])
    compiled = start.last(EventName.COMPILE)
    chosen = [compiled.facts.get(name, "") if compiled else "" for name in ("attention", "compute_dtype")]
    number = f"{'' if start.opened else 'before '}{start.number + 1}"
    cells = (number, began, lasted, *chosen, steps, lost, start.ending, start.cause)
    return [escape(str(cell)) for cell in cells]


def _mesh(placement: Placement) -> Iterator[str]:
    _, inner = fixed_and_varying(list(chain.from_iterable(placement.slice_places(0))))
    yield quiet(
        f"{placement.summary}. Each colour is a replica or one of its stages. A device shows its coordinates on"
        f" {'·'.join(inner) or 'the mesh'}."
    )
    yield mesh_drawing(placement)
    rows = [
        (
            array.name,
            f"{array.dtype}[{', '.join(map(str, array.shape))}]",
            array.split_text(),
            f"[{', '.join(map(str, array.shard_shape(placement.mesh)))}]",
            f"{array.shard_bytes(placement.mesh):,}",
        )
        for array in placement.arrays
    ]
    cells = [[*map(escape, row)] for row in [*rows, ("all", "", "", "", f"{placement.state_bytes:,}")]]
    yield table(("array", "shape", "split over", "on each device", "bytes on each"), cells, numbers=(4,))


def _manifest(manifest: dict[str, Any]) -> Iterator[str]:
    if not manifest:
        yield quiet("The manifest is missing.")
        return
    spec = manifest.get("spec", {})
    sections = ("slices", "mesh", "model", "optimizer", "training", "data")
    facts = {
        "preset": spec.get("preset"),
        "image": manifest.get("image") or "none: a checkout",
        "commit": manifest.get("commit") or "none: an image",
        "data digest": manifest.get("data_digest"),
        "versions": manifest.get("versions", {}),
        **{name: spec[name] for name in sections if name in spec},
    }
    yield table(("what", "value"), [(escape(name), _value(value)) for name, value in facts.items()])


def _value(value: Any) -> str:
    if not isinstance(value, dict):
        return escape(str(value))
    plain = {key: each if isinstance(each, str) else json.dumps(each) for key, each in value.items()}
    return ", ".join(f"{escape(str(key))} <code>{escape(each)}</code>" for key, each in plain.items())
