"""`multislice status` and `multislice list` show the slices, queues and jobs of a stack."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import groupby

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from cli.answer import NEGATIVE, as_json, waiting
from cli.deployed import Deployed
from cli.observed.causes import first_cause
from cli.observed.observe import Observer, lacks_its_end, require_answer
from cli.observed.snapshot import JobStatus, Node, Queue, Snapshot, Summary, summary
from cli.render import WIDTH, counted, duration, numbered, pods_table, rows_of, training_lines, waiting_lines
from infra.cluster.job_state import State
from infra.stack.cost import dollars, per_hour

WATCH_SECONDS = 2.0
"""Time between two reads of the cluster."""
_GONE_LOOKS = 30
"""Reads without the job until it counts as cancelled, because `up` may replace it with another one."""
_MAX_LAST_READS = 5
"""Largest number of reads after a job has completed until its records have its end."""
_LINES_PER_RUN = 20
"""Number of lines about steps in the log of a whole run."""
_RESTARTS_SHOWN = 3
"""Number of restarts, the newest ones, whose causes are listed."""
_INDENT = 2
_GAP = 2
"""Spaces between two columns of a table."""
_UNCUT = 10_000
"""More columns than any line needs, for files."""
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

_READING = "reading the cluster and the records of its jobs"


def status(deployed: Deployed, name: str | None, console: Console, *, json: bool) -> int:
    """Print the stack and the job `name`, or all jobs of the stack if it is None."""
    observer = Observer(deployed)
    with waiting(_READING):
        if name is not None:
            snapshot, job = observer.job(name)
            found = [job]
        else:
            snapshot = require_answer(observer.look(*(() if deployed.kubectl else (ref.name for ref in deployed.jobs))))
            found = [job for job in snapshot.jobs if job.declared or deployed.kubectl]
    if json:
        console.out(_object(snapshot, found))
        return 0
    shown = screen(snapshot, found, console.width if console.is_terminal else _UNCUT)
    if console.is_terminal:
        console.print(shown)
    else:
        # Programs that read it need whole names.
        rows = console.render_lines(shown, console.options.update(width=_UNCUT), pad=False)
        console.out("\n".join("".join(segment.text for segment in row).rstrip() for row in rows))
    return 0


def jobs(deployed: Deployed, console: Console, *, json: bool) -> int:
    """Print all jobs in the namespaces of the stack's teams."""
    with waiting(_READING):
        snapshot = require_answer(Observer(deployed).look())
    found = [summary(job, snapshot.at) for job in snapshot.jobs]
    if json:
        console.out(as_json({"jobs": found, "notes": snapshot.notes}))
        return 0
    recorded = _is_recorded(snapshot)
    if not found:
        console.print("no job")
    elif console.is_terminal:
        console.print(table(found, console.width, recorded=recorded))
    else:
        # Programs that read the table need whole names, and Rich takes long for thousands of rows.
        console.out("\n".join(_lines(_columns(found, recorded=recorded))))
    for note in notes(snapshot):
        console.print(note)
    return 0


def _is_recorded(snapshot: Snapshot) -> bool:
    """Return whether jobs may have records. In a foreign cluster, they have some if they name a bucket."""
    return bool(snapshot.stack) or any(job.folder for job in snapshot.jobs)


@dataclass
class Watch:
    """Follows one job until it has ended."""

    deployed: Deployed
    name: str | None
    console: Console
    json: bool = False
    """Whether to print one JSON object per line, each time something other than the time has changed."""
    hint: str = ""
    """Command to suggest while the job runs, once it has saved a checkpoint: below the job, or once in a log."""
    wait: Callable[[float], None] = time.sleep
    _shown: object = None
    _hinted: bool = False

    def run(self) -> int:
        """Return 0 if the job completes, 2 if it fails or is cancelled. Raise Halt if the first read fails."""
        _, job = self.follow()
        return 0 if job.state is State.COMPLETED else NEGATIVE

    def follow(self) -> tuple[Snapshot, JobStatus]:
        """Return the stack and the job as they are when the job ends; raise as `run` does."""
        observer = Observer(self.deployed)
        snapshot, job = observer.job(self.name)
        live, missed, last_looks = Live(console=self.console, auto_refresh=False), 0, 0
        with live if self._draws else nullcontext():
            while True:
                if lacks_its_end(job) and last_looks < _MAX_LAST_READS:
                    last_looks += 1
                    self.wait(WATCH_SECONDS)
                    snapshot, job = observer.again(snapshot, job)
                    continue
                self._show(live, snapshot, job)
                missed = missed + 1 if job.state is State.MISSING else 0
                if job.state in (State.COMPLETED, State.FAILED) or missed > _GONE_LOOKS:
                    return snapshot, job
                self.wait(WATCH_SECONDS)
                snapshot, job = observer.again(snapshot, job)

    @property
    def _draws(self) -> bool:
        return self.console.is_terminal and not self.json

    def _show(self, live: Live, snapshot: Snapshot, job: JobStatus) -> None:
        # Without a checkpoint, the job would start again at step 0.
        saved = job.state is State.RUNNING and job.training.checkpoint_step is not None
        hint = f"try: {self.hint}" if self.hint and saved else ""
        if self._draws:
            live.update(Group(screen(snapshot, (job,), self.console.width), Text(hint, "dim")), refresh=True)
            return
        self._log_news(snapshot, job)
        if hint and not self._hinted:
            self._hinted = True
            self._log(hint)

    def _log_news(self, snapshot: Snapshot, job: JobStatus) -> None:
        # The time of the read differs each time, and so does the job's age.
        shown = _object(replace(snapshot, at=0.0), (job,)) if self.json else _news(job, snapshot.at)
        if shown == self._shown:
            return
        restarts = self._shown[1] if isinstance(self._shown, tuple) else job.restarts
        self._shown = shown
        if self.json:
            self.console.out(_object(snapshot, (job,), indent=None))
            return
        stamp = time.strftime("%H:%M:%S")
        for text in (*restart_lines(job, restarts), line(job, snapshot.at)):
            self._log(f"{stamp}  {text}")

    def _log(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


def _news(job: JobStatus, at: float) -> tuple[object, ...]:
    figures = summary(job, at)
    is_counted = figures.step is not None and figures.steps
    part = (figures.step or 0) * _LINES_PER_RUN // figures.steps if is_counted else figures.progress
    hosts = (figures.hosts_running, *waiting_lines(job.pods)) if figures.state is State.STARTING else ()
    return figures.state, figures.restarts, figures.position, part, figures.run, *hosts


def _object(snapshot: Snapshot, found: Sequence[JobStatus], indent: int | None = 1) -> str:
    figures = [summary(job, snapshot.at) for job in found]
    return as_json({"jobs": figures, "stack": replace(snapshot, jobs=tuple(found))}, indent)


def screen(snapshot: Snapshot, found: Sequence[JobStatus], columns: int) -> RenderableType:
    """Return the stack and these of its jobs: a single job in detail, several jobs on one line each."""
    width = min(columns, WIDTH)
    price = [] if snapshot.usd_per_hour is None else [per_hour(snapshot.usd_per_hour)]
    facts = [f"cluster {snapshot.cluster}"] if snapshot.cluster else []
    heading = Text.assemble((snapshot.stack or snapshot.place, "bold"), (" · ".join(["", *facts, *price]), "dim"))
    parts: list[RenderableType] = [heading, Text(), _stack(snapshot)]
    if len(found) == 1:
        parts += [Text(), *_job(found[0], snapshot, width)]
    elif found:
        parts += [Text(), table([summary(job, snapshot.at) for job in found], columns, recorded=_is_recorded(snapshot))]
    return Group(*parts, *notes(snapshot))


def notes(snapshot: Snapshot) -> list[RenderableType]:
    """Return the notes about what could not be read."""
    return [Text(), *(Text(note, "dim") for note in snapshot.notes)] if snapshot.notes else []


def table(found: Sequence[Summary], width: int, *, recorded: bool = True) -> RenderableType:
    """Return a table with one line per job; unless `recorded`, without what only the records of a job say.

    `width` is that of the terminal, which cuts the last columns if names cannot be short enough.
    """
    columns = _columns(found, recorded=recorded)
    whole = {name: max(map(len, (name, *cells))) for name, cells in columns.items()}
    least = sum(min(each, _SHRINKING.get(name, each)) + _GAP for name, each in whole.items()) - _GAP
    shown = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
    # Rich would shrink names to nothing.
    shown.width = least if least > width else None
    for name in columns:
        at_least = min(whole[name], _SHRINKING[name]) if name in _SHRINKING else None
        justify = "right" if name in _NUMBERS else "left"
        shown.add_column(name, no_wrap=at_least is None, min_width=at_least, justify=justify)
    for row in zip(*columns.values(), strict=True):
        shown.add_row(*row)
    return shown


_COLUMNS = ("job", "namespace", "state", "queue", "age", "step", "restarts", "$ so far")
_SHRINKING = {"job": 8, "namespace": 4, "step": 6}
"""Columns that a narrow terminal cuts, and their least widths. The progress of an attempt without a step is a sentence,
which wraps."""
_OF_RECORDS, _NUMBERS = ("step", "$ so far"), ("age", "restarts", "$ so far")


def _columns(found: Sequence[Summary], *, recorded: bool) -> dict[str, list[str | Text]]:
    cells = zip(*map(_cells, found), strict=True)
    return {name: [*each] for name, each in zip(_COLUMNS, cells, strict=True) if recorded or name not in _OF_RECORDS}


def _lines(columns: Mapping[str, Sequence[str | Text]]) -> Iterator[str]:
    aligned: list[list[str]] = []
    for name, cells in columns.items():
        texts = [name, *map(str, cells)]
        width = max(map(len, texts))
        aligned.append([text.rjust(width) if name in _NUMBERS else text.ljust(width) for text in texts])
    yield from ("  ".join(row).rstrip() for row in zip(*aligned, strict=True))


def _cells(job: Summary) -> tuple[str | Text, ...]:
    return (
        job.name,
        job.namespace,
        Text(job.state, _STYLES[job.state]),
        job.queue if job.position is None else f"{job.queue}, position {job.position}",
        "-" if job.age_seconds is None else duration(job.age_seconds),
        job.progress.removeprefix("step ") or "-",
        str(job.restarts),
        dollars(job.usd),
    )


def line(job: JobStatus, at: float) -> str:
    """Return one line about a job, for a log."""
    figures = summary(job, at)
    parts = [f"{figures.name} {figures.state}"]
    if figures.position is not None:
        parts.append(f"position {figures.position} in {figures.queue}")
    if figures.state is State.STARTING:
        parts.append(f"{figures.hosts_running} of {figures.hosts} hosts running")
        if job.heads_running < job.heads:
            parts.append("head not running")
        parts += waiting_lines(job.pods)
    if figures.progress:
        parts.append(figures.progress)
    if figures.loss is not None:
        parts.append(f"loss {figures.loss:.4f}")
    if figures.seconds_left is not None:
        parts.append(f"{duration(figures.seconds_left)} left")
    if figures.restarts:
        parts.append(counted(figures.restarts, "restart"))
    return ", ".join(parts)


def restart_lines(job: JobStatus, after: int = 0) -> list[str]:
    """Return a line for each restart and its cause, or for several in a row of the same cause.

    `after`: the restarts up to this one are left out.
    """
    causes = ((number, first_cause(job, number - 1)) for number in range(after + 1, job.restarts + 1))
    said = ((number, cause.words(job.kind) if cause else "unknown") for number, cause in causes)
    rows = ((words, [number for number, _ in group]) for words, group in groupby(said, key=lambda each: each[1]))
    return [f"{numbered('restart', numbers[0], numbers[-1])}: {words}" for words, numbers in rows]


def _stack(snapshot: Snapshot) -> RenderableType:
    grid = Table.grid(Column(style="dim", no_wrap=True), Column(no_wrap=True), Column(overflow="fold"), padding=(0, 2))
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
        why = f"the budget is used up: {queue.over_budget}" if queue.over_budget else queue.active.message
        text.append(f"; admits nothing: {why or queue.active.reason}", "bold red")
    return text


def _job(job: JobStatus, snapshot: Snapshot, width: int) -> Iterable[RenderableType]:
    figures = summary(job, snapshot.at)
    age = "" if figures.age_seconds is None else f" · submitted {duration(figures.age_seconds)} ago"
    yield Text.assemble((figures.name, "bold"), "  ", (figures.state, _STYLES[figures.state]), (age, "dim"))
    inside: list[RenderableType] = [rows_of(_facts(job, figures))]
    if figures.step is not None:
        inside += [Text(), *training_lines(job.training, figures.seconds_left, width - _INDENT)]
    if job.pods or (job.has_pods and figures.state in (State.STARTING, State.RUNNING)):
        expected = job.hosts + job.heads if job.has_pods and not figures.state.is_end else 0
        inside += [Text(), pods_table(job.pods, expected, figures.kind)]
    yield Padding(Group(*inside), (0, 0, 0, _INDENT))


def _counted(job: JobStatus) -> str:
    """Return how many restarts count. `max_restarts` limits those of processes, and those by JobSet."""
    if not job.processes_counted:
        return f"{job.restarts_counted} count towards {job.max_restarts}"
    return f"{job.processes_counted} of processes and {job.pods_counted} of pods count, each towards {job.max_restarts}"


def _facts(job: JobStatus, figures: Summary) -> Iterator[tuple[str, RenderableType]]:
    if figures.position is not None:
        said = job.workload.condition("QuotaReserved") if job.workload else None
        yield "queue", f"position {figures.position} in {figures.queue}{f': {said.message}' if said else ''}"
    if figures.progress:
        run = f"run {figures.run}" if figures.run else ""
        yield "training", ", ".join(filter(None, (figures.progress, run, job.training.run)))
    if figures.usd is not None:
        yield "spent", f"{dollars(figures.usd)} so far"
    if figures.goodput is not None:
        yield "goodput", f"{100 * figures.goodput:.1f} %"
    if figures.restarts:
        yield "restarts", f"{figures.restarts}, of which {_counted(job)}"
        yield from (("", text) for text in restart_lines(job)[-_RESTARTS_SHOWN:])
    if figures.state is State.FAILED and (end := first_cause(job, job.restarts)):
        yield "failed", f"{end.words(job.kind)}{', and the restarts are used up' if job.used_up else ''}"
    if figures.hosts:
        known = job.has_pods and not figures.state.is_end
        hosts = f"{figures.hosts_running} of {figures.hosts} running" if known else str(figures.hosts)
        yield "hosts", f"{hosts} on {counted(figures.slices, 'slice')}" if figures.slices else hosts
