"""Formats jobs, times, prices and messages of the scheduler as text and as terminal tables, for several commands."""

import re
import signal
from collections.abc import Collection, Iterable, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from infra.cluster.job_pods import Pod
from infra.cluster.job_state import Kind
from infra.stack.names import HEAD
from workloads.report.training import Training
from workloads.spec import ExitCode

WIDTH = 100
"""Largest number of columns to use, because longer lines are hard to read."""

_SPARKS = "▁▂▃▄▅▆▇█"
_SPARK_COLUMNS = 32
_POD_COLORS = {"Running": "green", "Succeeded": "green", "Failed": "red", "Pending": "yellow", "Terminating": "yellow"}

_UNSCHEDULABLE = re.compile(r"0/(?P<nodes>\d+) nodes are available: (?P<reasons>.+?)\.(?= |$)")
"""The scheduler's message (kubernetes/pkg/scheduler/framework/types.go), without what it says of preemption."""
_REASON = re.compile(r"(?P<count>\d+) (?P<reason>.+?)(?=, \d+ |$)")
CORDONED, TAINTED = "were unschedulable", "untolerated taint"
"""Parts of the scheduler's message about nodes that are cordoned, or have a taint, such as one that is not ready."""
_REASON_WORDS = (
    (CORDONED, "cordoned"),
    (TAINTED, "not ready, or with another taint"),
    ("Insufficient google.com/tpu", "without free chips"),
    (r"Insufficient (?P<resource>\S+)", r"with too little free \g<resource>"),
    ("node affinity/selector", "not of the job's slices"),
    ("anti-affinity", "in the slice of other pods"),
    ("pod affinity", "outside the slice of the other hosts"),
    ("Too many pods", "with as many pods as they may have"),
)
"""Words for the filters' reasons (kubernetes/pkg/scheduler/framework/plugins), by a pattern."""


def duration(seconds: float) -> str:
    """Return a duration such as `0.4 s`, `42 s`, `3 min 07 s` or `2 h 05 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def counted(count: int, word: str) -> str:
    """Return a count with its noun, such as `1 host` or `2 hosts`."""
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def numbered(word: str, first: int, last: int) -> str:
    """Return `restart 1`, or `restarts 1 to 3`."""
    return f"{word} {first}" if first == last else f"{word}s {first} to {last}"


def exit_words(code: int, kind: Kind = Kind.TRAINING) -> str:
    """Return an exit code such as `137 (SIGKILL)` or `22 (diverged)`. Codes of a container have no name: `22`."""
    if kind is not Kind.CONTAINER and code in set(ExitCode):
        return f"{code:d} ({ExitCode(code).name.lower().replace('_', ' ')})"
    return f"{code} ({signal.Signals(code - 128).name})" if code - 128 in set(signal.Signals) else str(code)


def bar(done: float, total: float, width: int) -> RenderableType:
    """Return a progress bar on a line of its own."""
    shown = ProgressBar(total=total, completed=min(done, total), width=width, finished_style="bar.complete")
    # ProgressBar does not end its line.
    return Padding(shown, 0)


def training_lines(training: Training, seconds_left: float | None, width: int) -> list[RenderableType]:
    """Return a bar, and the figures and losses of an attempt that has restored its state."""
    shown = bar(training.step or 0, training.steps, width)
    if training.last_step_at is None:
        waiting = training.step != training.steps
        return [shown, Text("waiting for the first step: JAX is compiling", "dim")] if waiting else [shown]
    figures = {
        "loss": "-" if training.loss is None else f"{training.loss:.3f}",
        "held out": "-" if training.held_out_loss is None else f"{training.held_out_loss:.3f}",
        "tokens/s": f"{training.tokens_per_second:,.0f}",
        "step": f"{training.step_ms:.0f} ms",
        "left": "-" if seconds_left is None else duration(seconds_left),
        "checkpoint": "-" if training.checkpoint_step is None else str(training.checkpoint_step),
    }
    line = Text("   ").join(Text.assemble((f"{name} ", "dim"), value) for name, value in figures.items())
    spark = Text(sparkline([loss for _, loss in training.losses], min(_SPARK_COLUMNS, width)), "cyan")
    return [shown, line, spark]


def sparkline(values: Sequence[float], columns: int) -> str:
    """Return the values as a row of bars, with the newest on the right."""
    if not values:
        return ""
    count = min(columns, len(values))
    chosen = [values[(index + 1) * len(values) // count - 1] for index in range(count)]
    low, high = min(chosen), max(chosen)
    scale = (len(_SPARKS) - 1) / ((high - low) or 1.0)
    return "".join(_SPARKS[round((value - low) * scale)] for value in chosen)


def pods_table(pods: Collection[Pod], expected: int, kind: Kind) -> RenderableType:
    """Return a table of a job's pods, and why some have no node.

    `expected` is the number of pods that the job should have, including its head.
    """
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in ("slice", "host", "phase", "node"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    for pod in pods:
        phase = f"{pod.phase}, exit {exit_words(pod.exit_code, kind)}" if pod.exit_code else pod.phase
        slice_and_host = (HEAD, "-") if pod.is_head else pod.host.rsplit("-", 2)[1:]
        table.add_row(*slice_and_host, Text(phase, _POD_COLORS.get(pod.phase, "")), pod.node or Text("-", "dim"))
    missing = expected - len(pods)
    more = [Text(f"{missing} more to be created", "dim")] if missing > 0 else []
    return Group(table, *(Text(line, "yellow") for line in waiting_lines(pods)), *more)


def waiting_lines(pods: Iterable[Pod]) -> list[str]:
    """Return one line for each message of the scheduler about pods without a node."""
    return [f"{', '.join(hosts)} without a node: {message}" for message, hosts in group_by_reason(pods).items()]


def group_by_reason(pods: Iterable[Pod]) -> dict[str, list[str]]:
    """Return the hosts whose pods have no node, by what the scheduler says."""
    said: dict[str, list[str]] = {}
    for pod in pods:
        if pod.waits_for and not pod.node:
            said.setdefault(scheduler_words(pod.waits_for), []).append(pod.host)
    return said


def rows_of(found: Iterable[tuple[str, RenderableType]]) -> RenderableType:
    """Return names and values as a grid."""
    grid = Table.grid(Column(style="dim", no_wrap=True), Column(overflow="fold"), padding=(0, 2))
    for row in found:
        grid.add_row(*row)
    return grid


def scheduler_words(message: str) -> str:
    """Return the scheduler's message in a few words; the message itself if it has another form."""
    found = _UNSCHEDULABLE.match(message)
    if found is None:
        return message
    reasons = [f"{each['count']} {_reason_words(each['reason'])}" for each in _REASON.finditer(found["reasons"])]
    return f"of {found['nodes']} nodes {', '.join(reasons)}" if reasons else message


def _reason_words(reason: str) -> str:
    matches = ((re.search(pattern, reason), words) for pattern, words in _REASON_WORDS)
    return next((found.expand(words) for found, words in matches if found), reason)
