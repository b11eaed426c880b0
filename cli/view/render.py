"""A snapshot as a rich renderable: a pure function of the snapshot and the time.

Owns what a terminal shows while things go on; what is said after the end is `cli.view.closing`.
"""

import signal
from collections.abc import Callable, Collection, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cli.observed.first_cause import HostEnd
from cli.observed.pod import Pod
from cli.observed.training import Training
from cli.view.snapshot import Phase, Snapshot
from infra.names import HEAD
from workloads.spec import ExitCode

WIDTH = 100
"""Columns in use on a wide terminal; longer lines are hard to read."""

_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_SPINS_PER_SECOND = 8
_SPARKS = "▁▂▃▄▅▆▇█"
_SPARK_COLUMNS = 32
_INDENT = 4
_POD_COLORS = {"Running": "green", "Succeeded": "green", "Failed": "red", "Pending": "yellow", "Terminating": "yellow"}


def screen(snapshot: Snapshot, now: float, columns: int) -> RenderableType:
    """Everything, for a terminal of so many columns."""
    width = min(columns, WIDTH)
    parts: list[RenderableType] = [Text(), _heading(snapshot), Text()]
    for phase in snapshot.phases:
        parts.append(_phase(snapshot, phase, now, width))
        if phase is snapshot.running():
            parts += [Padding(part, (0, 0, 0, _INDENT)) for part in _inside(snapshot, phase, width - _INDENT)]
    return Group(*parts, *_notes(snapshot))


def duration(seconds: float) -> str:
    """`0.4 s`, `42 s`, `3 min 07 s`, `2 h 05 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def _heading(snapshot: Snapshot) -> Text:
    return Text.assemble((snapshot.title, "bold"), (f" · {snapshot.job}" if snapshot.job else "", "dim"))


def _phase(snapshot: Snapshot, phase: Phase, now: float, width: int) -> RenderableType:
    span = snapshot.spans.get(phase)
    row = Table.grid(padding=(0, 1), pad_edge=False)
    row.width = width
    for style, columns in (("", 1), ("", max(len(name) for name in snapshot.phases))):
        row.add_column(style=style, width=columns, no_wrap=True)
    row.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    row.add_column(justify="right", no_wrap=True)
    if span is None:
        row.add_row(Text("·", "dim"), Text(phase, "dim"), "", "")
    elif span.ended is None:
        spin = _SPINNER[int(now * _SPINS_PER_SECOND) % len(_SPINNER)]
        row.add_row(Text(spin, "cyan"), Text(phase, "bold"), _detail(snapshot, phase), duration(span.seconds(now)))
    else:
        mark = Text("✗", "red") if span.failed else Text("✓", "green")
        row.add_row(mark, phase, Text(_detail(snapshot, phase), "dim"), Text(duration(span.seconds(now)), "dim"))
    return row


def _detail(snapshot: Snapshot, phase: Phase) -> str:
    training = snapshot.training
    if phase is Phase.TRAINING and training.steps:
        run = f" · {training.run}" if training.run else ""
        return f"step {training.step} of {training.steps}{run}"
    return snapshot.spans[phase].detail.partition("\n")[0]


def _inside(snapshot: Snapshot, phase: Phase, width: int) -> list[RenderableType]:
    """What the running phase shows below its line."""
    match phase:
        case Phase.INFRASTRUCTURE if snapshot.resources.total:
            return [_bar(len(snapshot.resources.done), snapshot.resources.total, width)]
        case Phase.PODS:
            return [pods_table(snapshot.pods.values(), snapshot.pod_count, exit_words)]
        case Phase.TRAINING:
            hint = Text(f"try: {snapshot.hint}", "dim") if snapshot.hint else Text()
            return [
                *training_lines(snapshot.training, width),
                Text(),
                pods_table(snapshot.pods.values(), snapshot.pod_count, exit_words),
                Text(),
                hint,
            ]
        case _:
            reason = snapshot.spans[phase].detail.partition("\n")[2]
            return [Text(reason, "yellow")] if reason else []


def _bar(done: float, total: float, width: int) -> RenderableType:
    return ProgressBar(total=total, completed=min(done, total), width=width, finished_style="bar.complete")


def training_lines(training: Training, width: int) -> list[RenderableType]:
    """A bar, the figures of the last step, and the losses as a row of bars."""
    if training.loss is None:
        return [Text("waits for the first step: JAX compiles", "dim")]
    figures = [
        ("loss", f"{training.loss:.3f}"),
        ("held out", "-" if training.held_out_loss is None else f"{training.held_out_loss:.3f}"),
        ("tokens/s", f"{training.tokens_per_second:,.0f}"),
        ("step", f"{training.step_ms:.0f} ms"),
        ("left", duration(training.seconds_left())),
        ("checkpoint", "-" if training.checkpoint_step is None else str(training.checkpoint_step)),
    ]
    line = Text()
    for name, value in figures:
        line.append(f"{name} ", "dim").append(value).append("   ")
    line.rstrip()
    spark = Text(sparkline([loss for _, loss in training.losses], min(_SPARK_COLUMNS, width)), "cyan")
    return [_bar(training.step, training.steps, width), line, spark]


def sparkline(values: Sequence[float], columns: int) -> str:
    """The values as one row of bars, the newest at the right end."""
    if not values:
        return ""
    count = min(columns, len(values))
    chosen = [values[(index + 1) * len(values) // count - 1] for index in range(count)]
    low, high = min(chosen), max(chosen)
    scale = (len(_SPARKS) - 1) / ((high - low) or 1.0)
    return "".join(_SPARKS[round((value - low) * scale)] for value in chosen)


def pods_table(pods: Collection[Pod], expected: int, words: Callable[[int], str]) -> RenderableType:
    """The pods of a job that has `expected` of them, its head among them, and what keeps some without a node.

    `words` tells what an exit code is: `exit_words` of the trainer's, `code_words` of any other program's.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in ("slice", "host", "phase", "node"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for pod in pods:
        phase = Text(_pod_phase(pod, words), _POD_COLORS.get(pod.phase, ""))
        slice_and_host = (HEAD, "-") if pod.is_head else pod.host.rsplit("-", 2)[1:]
        table.add_row(*slice_and_host, phase, pod.node or Text("-", "dim"))
    missing = expected - len(pods)
    more = [Text(f"{missing} more to be created", "dim")] if missing > 0 else []
    return Group(table, *(Text(line, "yellow") for line in waiting_lines(pods)), *more)


def waiting_lines(pods: Collection[Pod]) -> list[str]:
    """What the scheduler says of pods that it has no node for, one line for each thing said."""
    said: dict[str, list[str]] = {}
    for pod in pods:
        if pod.waits_for:
            said.setdefault(pod.waits_for, []).append(pod.host)
    return [f"{', '.join(hosts)} without a node: {message}" for message, hosts in said.items()]


def _pod_phase(pod: Pod, words: Callable[[int], str]) -> str:
    return f"{pod.phase}, exit {words(pod.exit_code)}" if pod.exit_code else pod.phase


def exit_words(code: int | None) -> str:
    """`137 (SIGKILL)`, `22 (diverged)`."""
    match code:
        case None:
            return "unknown"
        case ExitCode():
            return f"{code:d} ({code.name.lower().replace('_', ' ')})"
        case code if code in set(ExitCode):
            return exit_words(ExitCode(code))
        case _:
            return code_words(code)


def code_words(code: int) -> str:
    """The same of a program whose codes are its own: `137 (SIGKILL)`, `22`."""
    return f"{code} ({signal.Signals(code - 128).name})" if code - 128 in set(signal.Signals) else str(code)


def restart_lines(snapshot: Snapshot) -> list[str]:
    """One line for each restart and its cause."""
    return [_restart_line(number, snapshot.first_cause(number - 1)) for number in range(1, snapshot.restarts + 1)]


def _restart_line(number: int, cause: HostEnd | None) -> str:
    if cause is None:
        return f"restart {number}: before this view began"
    return f"restart {number}: host {cause.host} exited {exit_words(cause.code)}"


def _notes(snapshot: Snapshot) -> list[RenderableType]:
    notes = [Text(f"↻ {line}", "yellow") for line in restart_lines(snapshot)]
    return [Text(), *notes] if notes else []
