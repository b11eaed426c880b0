"""`multislice status` and `multislice list`: the slices and queues of a stack, and how far its jobs are."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import groupby

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cli.answer import as_json
from cli.deployed import Deployed
from cli.observed.first_cause import first_cause
from cli.observed.observe import Observer, answered
from cli.observed.snapshot import Job, Node, Queue, Snapshot, Summary, summary
from cli.render import (
    WIDTH,
    dollars,
    duration,
    exit_words,
    pods_table,
    rows_of,
    training_lines,
    waiting_lines,
)
from infra.job_state import Kind, State

WATCH_SECONDS = 2.0
"""Time between two looks."""
FAILED = 2
"""Exit status of a watch whose job failed, or is missing."""
_GONE_LOOKS = 30
"""Looks without the job until it counts as cancelled: `up` may put another one in its place."""
_LINES_PER_RUN = 20
"""Lines about steps in a log of a whole run."""
_RESTARTS_SHOWN = 3
"""Newest restarts whose causes are listed."""
_INDENT = 2
_STYLES = {
    State.MISSING: "dim",
    State.QUEUED: "yellow",
    State.EVICTED: "yellow",
    State.PAUSED: "dim",
    State.DEACTIVATED: "bold red",
    State.STARTING: "cyan",
    State.RUNNING: "green",
    State.COMPLETED: "bold green",
    State.FAILED: "bold red",
}


def status(deployed: Deployed, name: str | None, console: Console, *, json: bool) -> int:
    """Print the stack and its job of that name; None: all of its jobs.

    Raises:
        Halt: there is no such job, or the cluster does not answer.
    """
    observer = Observer(deployed)
    if name:
        snapshot, job = observer.job(name)
        found = [job]
    else:
        snapshot = answered(observer.look(*(place.name for place in deployed.jobs)))
        found = [job for job in snapshot.jobs if job.declared]
    if json:
        console.out(_object(snapshot, found))
    else:
        console.print(screen(snapshot, found, console.width))
    return 0


def jobs(deployed: Deployed, console: Console, *, json: bool) -> int:
    """Print all jobs in the namespaces of the stack's teams.

    Raises:
        Halt: the cluster does not answer.
    """
    snapshot = answered(Observer(deployed).look())
    found = [summary(job, snapshot.at) for job in snapshot.jobs]
    if json:
        console.out(as_json({"jobs": found, "notes": snapshot.notes}))
        return 0
    console.print(table(found) if found else "no job")
    for note in notes(snapshot):
        console.print(note)
    return 0


@dataclass
class Watch:
    """Follows one job until it has ended."""

    deployed: Deployed
    name: str | None
    console: Console
    json: bool = False
    """Print one JSON object per line, whenever more than the time has changed."""
    hint: str = ""
    """A command to try while the job runs, shown below it."""
    wait: Callable[[float], None] = time.sleep
    _shown: object = None
    _missed: int = 0

    def run(self) -> int:
        """Return 0 when the job is complete, 2 when it failed or was cancelled.

        Raises:
            Halt: there is no such job, or the cluster does not answer at first.
        """
        _, job = self.follow()
        return 0 if job.state is State.COMPLETED else FAILED

    def follow(self) -> tuple[Snapshot, Job]:
        """Return the stack and the job as they are at its end; raises as `run`."""
        observer = Observer(self.deployed)
        snapshot, job = observer.job(self.name)
        live = Live(console=self.console, auto_refresh=False)
        with live if self._draws else nullcontext():
            while True:
                self._show(live, snapshot, job)
                if self._has_ended(job):
                    return snapshot, job
                self.wait(WATCH_SECONDS)
                snapshot, job = observer.again(snapshot, job)

    @property
    def _draws(self) -> bool:
        return self.console.is_terminal and not self.json

    def _has_ended(self, job: Job) -> bool:
        self._missed = self._missed + 1 if job.state is State.MISSING else 0
        return job.state in (State.COMPLETED, State.FAILED) or self._missed > _GONE_LOOKS

    def _show(self, live: Live, snapshot: Snapshot, job: Job) -> None:
        if self._draws:
            hint = Text(f"try: {self.hint}", "dim") if self.hint and job.state is State.RUNNING else Text()
            live.update(Group(screen(snapshot, (job,), self.console.width), hint), refresh=True)
            return
        # The moment of the look changes each time, and the job's age with it.
        shown = _object(replace(snapshot, at=0.0), (job,)) if self.json else _news(job, snapshot.at)
        if shown == self._shown:
            return
        restarts = self._shown[1] if isinstance(self._shown, tuple) else job.restarts
        self._shown = shown
        if self.json:
            self.console.out(_object(snapshot, (job,), indent=None))
            return
        stamp = time.strftime("%H:%M:%S")
        for told in (*restart_lines(job)[restarts:], line(job, snapshot.at)):
            self.console.print(f"{stamp}  {told}", markup=False, highlight=False, soft_wrap=True)


def _news(job: Job, at: float) -> tuple[object, ...]:
    """What has to change for another line in a log."""
    told = summary(job, at)
    part = told.step * _LINES_PER_RUN // told.steps if told.steps else 0
    hosts = (told.hosts_running, *waiting_lines(job.pods)) if told.state is State.STARTING else ()
    return told.state, told.restarts, told.position, part, told.run, *hosts


def _object(snapshot: Snapshot, found: Sequence[Job], indent: int | None = 1) -> str:
    figures = [summary(job, snapshot.at) for job in found]
    return as_json({"jobs": figures, "stack": replace(snapshot, jobs=tuple(found))}, indent)


def screen(snapshot: Snapshot, found: Sequence[Job], columns: int) -> RenderableType:
    """Return the stack and these jobs of it: one with everything that is known of it, several with a line each."""
    width = min(columns, WIDTH)
    parts: list[RenderableType] = [_heading(snapshot), Text(), _stack(snapshot)]
    if len(found) == 1:
        parts += [Text(), *_job(found[0], snapshot, width)]
    elif found:
        parts += [Text(), table([summary(job, snapshot.at) for job in found])]
    return Group(*parts, *notes(snapshot))


def notes(snapshot: Snapshot) -> list[RenderableType]:
    """Return what could not be read."""
    return [Text(), *(Text(note, "dim") for note in snapshot.notes)] if snapshot.notes else []


def table(found: Sequence[Summary]) -> RenderableType:
    """Return the jobs, one a line."""
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


def line(job: Job, at: float) -> str:
    """Return one job in one line, for a log."""
    told = summary(job, at)
    parts = [f"{told.name} {told.state}"]
    if told.position is not None:
        parts.append(f"position {told.position} in {told.queue}")
    if told.state is State.STARTING:
        parts.append(f"{told.hosts_running} of {told.hosts} hosts run")
        if job.heads_running < job.heads:
            parts.append("the head does not")
        parts += waiting_lines(job.pods)
    if told.steps:
        parts.append(f"step {told.step} of {told.steps}")
    if told.loss is not None:
        parts.append(f"loss {told.loss:.4f}")
    if told.seconds_left is not None:
        parts.append(f"{duration(told.seconds_left)} left")
    if told.restarts:
        parts.append(f"{told.restarts} restarts")
    return ", ".join(parts)


def restart_lines(job: Job) -> list[str]:
    """Return one line for each restart and its cause."""
    causes = [first_cause(job, attempt) for attempt in range(job.restarts)]
    return [
        f"restart {number}: " + (f"host {cause.host} exited {exit_words(cause.code, job.kind)}" if cause else "unknown")
        for number, cause in enumerate(causes, 1)
    ]


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
        grid.add_row("slice", pool, Text.assemble(("has no host", "yellow"), (f", {topology}", "dim")))
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
    yield rows_of(_facts(job, told))
    if told.steps or (told.state is State.RUNNING and told.kind is Kind.TRAINING):
        yield Text()
        yield from training_lines(job.files.training, width)
    if job.pods or told.state in (State.STARTING, State.RUNNING):
        yield Text()
        yield pods_table(job.pods, job.hosts + job.heads, told.kind)


def _facts(job: Job, told: Summary) -> Iterator[tuple[str, RenderableType]]:
    if told.position is not None:
        said = job.workload.said("QuotaReserved") if job.workload else None
        yield "queue", f"position {told.position} in {told.queue}{f': {said.message}' if said else ''}"
    if told.steps:
        run = f", {job.files.training.run}" if job.files.training.run else ""
        yield "training", f"step {told.step} of {told.steps}, run {told.run}{run}"
    if told.usd is not None:
        yield "spent", f"{dollars(told.usd)} so far"
    if told.goodput is not None:
        yield "goodput", f"{100 * told.goodput:.1f} %"
    if told.restarts:
        yield "restarts", f"{told.restarts}, {job.restarts_counted} of {told.max_restarts} that count"
        yield from (("", text) for text in restart_lines(job)[-_RESTARTS_SHOWN:])
    if told.slices:
        yield "hosts", f"{told.hosts_running} of {told.hosts} run, on {told.slices} slices"
