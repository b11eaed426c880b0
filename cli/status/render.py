"""A stack and its jobs as renderables: pure functions of a snapshot."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cli.observed.kind import Kind
from cli.observed.snapshot import Job, Node, Queue, Snapshot, State
from cli.observed.summary import Summary, summary
from cli.view.render import WIDTH, code_words, duration, exit_words, pods_table, training_lines

_STYLES = {
    State.MISSING: "dim",
    State.QUEUED: "yellow",
    State.EVICTED: "yellow",
    State.PAUSED: "dim",
    State.HELD: "bold red",
    State.STARTING: "cyan",
    State.RUNNING: "green",
    State.COMPLETED: "bold green",
    State.FAILED: "bold red",
}
_INDENT = 2


def screen(snapshot: Snapshot, found: Sequence[Job], columns: int) -> RenderableType:
    """The stack and these jobs of it: one with all that is known of it, several with a line each."""
    width = min(columns, WIDTH)
    parts: list[RenderableType] = [_heading(snapshot), Text(), _stack(snapshot)]
    if len(found) == 1:
        parts += [Text(), *_job(found[0], snapshot, width)]
    elif found:
        parts += [Text(), table([summary(job, snapshot.at) for job in found])]
    return Group(*parts, *notes(snapshot))


def notes(snapshot: Snapshot) -> list[RenderableType]:
    """What could not be read."""
    return [Text(), *(Text(note, "dim") for note in snapshot.notes)] if snapshot.notes else []


def table(found: Sequence[Summary]) -> RenderableType:
    """The jobs, one a line."""
    shown = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in ("job", "namespace", "state", "queue", "age", "step", "restarts", "$ so far"):
        shown.add_column(name, no_wrap=True, justify="right" if name in ("age", "restarts", "$ so far") else "left")
    for job in found:
        shown.add_row(
            job.name,
            job.namespace,
            Text(job.state, _STYLES[job.state]),
            job.queue if job.position is None else f"{job.queue}, position {job.position}",
            "-" if job.age_seconds is None else duration(job.age_seconds),
            f"{job.step} of {job.steps}" if job.steps else "-",
            str(job.restarts),
            dollars(job.usd),
        )
    return shown


def dollars(amount: float | None) -> str:
    """`$12.30`; `-` where no price is known."""
    return "-" if amount is None else f"${amount:,.2f}"


def line(job: Job, at: float) -> str:
    """One job in one line, for a log."""
    told = summary(job, at)
    parts = [f"{told.name} {told.state}"]
    if told.position is not None:
        parts.append(f"position {told.position} in {told.queue}")
    if told.state is State.STARTING:
        parts.append(f"{told.hosts_running} of {told.hosts} hosts run")
        if job.heads_running < job.heads:
            parts.append("the head does not")
    if told.steps:
        parts.append(f"step {told.step} of {told.steps}")
    if told.loss is not None:
        parts.append(f"loss {told.loss:.4f}")
    if told.seconds_left is not None:
        parts.append(f"{duration(told.seconds_left)} left")
    if told.restarts:
        parts.append(f"{told.restarts} restarts")
    return ", ".join(parts)


def _heading(snapshot: Snapshot) -> Text:
    price = [] if snapshot.usd_per_hour is None else [f"{dollars(snapshot.usd_per_hour)} an hour"]
    facts = [f"cluster {snapshot.cluster}"] if snapshot.cluster else []
    return Text.assemble((snapshot.stack, "bold"), (" · ".join(["", *facts, *price]), "dim"))


def _stack(snapshot: Snapshot) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for pool, nodes in groupby(snapshot.nodes, key=lambda node: node.pool):
        grid.add_row("slice", pool, _pool([*nodes]))
    for pool, topology in snapshot.hostless.items():
        grid.add_row("slice", pool, Text.assemble(("no host is there", "yellow"), (f", {topology}", "dim")))
    for queue in snapshot.queues:
        grid.add_row("queue", queue.name, _queue(queue))
    return grid


def _pool(nodes: Sequence[Node]) -> Text:
    usable = sum(node.usable for node in nodes)
    text = Text(f"{usable} of {len(nodes)} hosts usable", "" if usable == len(nodes) else "yellow")
    if nodes[0].topology:
        text.append(f", {nodes[0].topology}", "dim")
    for words, count in (
        ("not ready", sum(not node.ready for node in nodes)),
        ("cordoned", sum(node.cordoned for node in nodes)),
        ("marked as bad", sum(bool(node.bad_host) for node in nodes)),
    ):
        if count:
            text.append(f", {count} {words}", "yellow")
    return text


def _queue(queue: Queue) -> Text:
    shares = [
        f"{share.used} of {share.quota} chips of {share.flavor}"
        + (f", {share.borrowed} of them borrowed" if share.borrowed else "")
        for share in queue.shares
    ]
    text = Text(f"{'; '.join(shares) or 'no quota'}, {queue.admitted} admitted, {queue.pending} waiting")
    if queue.active and not queue.active.holds:
        text.append(f"; admits nothing: {queue.active.message or queue.active.reason}", "bold red")
    return text


def _job(job: Job, snapshot: Snapshot, width: int) -> Iterable[RenderableType]:
    told = summary(job, snapshot.at)
    age = "" if told.age_seconds is None else f" · submitted {duration(told.age_seconds)} ago"
    yield Text.assemble((told.name, "bold"), "  ", (told.state, _STYLES[told.state]), (age, "dim"))
    yield Padding(Group(*_inside(job, told, width - _INDENT)), (0, 0, 0, _INDENT))


def _inside(job: Job, told: Summary, width: int) -> Iterable[RenderableType]:
    yield _facts(job, told)
    if told.steps or (told.state is State.RUNNING and told.kind is Kind.TRAINING):
        yield Text()
        yield from training_lines(job.files.training, width)
    if job.pods or told.state in (State.STARTING, State.RUNNING):
        yield Text()
        yield pods_table(job.pods, job.hosts + job.heads, code_words if told.kind is Kind.CONTAINER else exit_words)


def _facts(job: Job, told: Summary) -> RenderableType:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    if told.position is not None:
        grid.add_row("queue", f"position {told.position} in {told.queue}")
    if told.steps:
        run = f", {job.files.training.run}" if job.files.training.run else ""
        grid.add_row("training", f"step {told.step} of {told.steps}, run {told.run}{run}")
    if told.usd is not None:
        grid.add_row("spent", f"{dollars(told.usd)} so far")
    if told.goodput is not None:
        grid.add_row("goodput", f"{100 * told.goodput:.1f} %")
    if told.restarts:
        counted = f"{job.restarts_counted} of {told.max_restarts} that count"
        grid.add_row("restarts", f"{told.restarts}, {counted}")
    if told.slices:
        grid.add_row("hosts", f"{told.hosts_running} of {told.hosts} run, on {told.slices} slices")
    return grid
