"""The pages of the dashboard: one of the stack, and one of each job with the report of its current run."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from html import escape
from itertools import groupby

from cli.explain.explain import explain
from cli.explain.finding import Finding
from cli.observed.observe import Observer, folder_of
from cli.observed.snapshot import Job, Node, Snapshot, State
from cli.observed.summary import Summary, summary
from cli.status.render import dollars
from cli.view.render import duration
from workloads.report.command import NoReport, answering, faults_of_storage, find_run
from workloads.report.history import read_history
from workloads.report.page import html_page, quiet, run_parts, section, table
from workloads.report.svg import element

_MOST_EVENTS = 50
_BAD = (State.HELD, State.FAILED)


@dataclass
class Pages:
    """Makes pages of what the cluster and the files say at that moment. Not for several threads at once."""

    observer: Observer
    _last: Snapshot | None = None

    def stack(self) -> str:
        """Return the page of the stack."""
        shown = self._look()
        parts = [
            *_heading(shown),
            section("Jobs", _jobs(summary(job, shown.at) for job in shown.jobs)),
            section("Slices", _slices(shown)),
            section("Queues", _queues(shown)),
        ]
        return html_page(shown.stack, parts)

    def job(self, full_name: str) -> str | None:
        """Return the page of the job `NAMESPACE/NAME`; None: there is no such job."""
        shown = self._look(full_name.rpartition("/")[2])
        job = next((each for each in shown.jobs if each.place.full_name == full_name), None)
        if job is None:
            return None
        findings = [part for finding in explain(shown, job) for part in _finding(finding, shown.at)]
        parts = [
            *_heading(shown),
            element("p", element("a", "all jobs", href="..")),
            section(f"{job.place.name}: {job.state}", *findings),
            section("Hosts", _hosts(job)),
            section("Events", _events(job)),
            *self._report(job),
        ]
        return html_page(f"{job.place.name} - {shown.stack}", parts)

    def _look(self, *names: str) -> Snapshot:
        """Look now; while the cluster does not answer, what was seen last stays."""
        seen = self.observer.look(*names)
        if not seen.answered and self._last:
            return replace(self._last, answered=False, notes=seen.notes)
        self._last = seen
        return seen

    def _report(self, job: Job) -> Iterator[str]:
        folder = folder_of(self.observer.deployed, job)
        if folder is None:
            return
        try:
            yield from run_parts(read_history(find_run(answering(folder))))
        except NoReport:
            yield quiet("The job has no run yet.")
        except (ImportError, *faults_of_storage()) as fault:
            yield quiet(f"{folder}: expected files that can be read, got {type(fault).__name__}: {fault}")


def _heading(shown: Snapshot) -> Iterator[str]:
    yield element("h1", escape(shown.stack))
    price = "" if shown.usd_per_hour is None else f", {dollars(shown.usd_per_hour)} an hour"
    yield quiet(f"cluster {shown.cluster}{price}, seen at {_clock(shown.at)}")
    if not shown.answered:
        yield element("p", "The cluster does not answer; this is what was seen last.", class_="bad")
    for note in shown.notes:
        yield quiet(note)


def _jobs(found: Iterable[Summary]) -> str:
    rows = [
        (
            element("a", escape(job.name), href=f"{job.namespace}/{job.name}"),
            _state(job.state),
            escape(job.queue if job.position is None else f"{job.queue}, position {job.position}"),
            f"{job.step:,} of {job.steps:,}" if job.steps else "-",
            "-" if job.loss is None else f"{job.loss:.4f}",
            "-" if job.seconds_left is None else duration(job.seconds_left),
            str(job.restarts),
            dollars(job.usd),
        )
        for job in found
    ]
    columns = ("job", "state", "queue", "step", "loss", "left", "restarts", "$ so far")
    return table(columns, rows, numbers=range(3, len(columns)))


def _state(state: State) -> str:
    return element("span", state, class_="bad") if state in _BAD else escape(state)


def _finding(finding: Finding, at: float) -> Iterator[str]:
    since = f" Since {duration(at - finding.since)}." if finding.since else ""
    yield element("p", escape(finding.what + since))
    yield from map(quiet, finding.evidence)
    yield from (element("p", element("code", escape(line))) for line in finding.next)


def _hosts(job: Job) -> str:
    rows = [
        (
            escape(pod.host),
            f"{pod.phase}, exit {pod.exit_code}" if pod.exit_code else pod.phase,
            escape(pod.node or "-"),
            escape(pod.held_up or pod.waits_for or pod.ended_for),
        )
        for pod in job.pods
    ]
    return table(("host", "phase", "node", "says"), rows)


def _events(job: Job) -> str:
    rows = [
        (_clock(event.at), escape(event.reason), escape(f"{event.kind} {event.name}"), escape(event.message))
        for event in job.events[:_MOST_EVENTS]
    ]
    return table(("time", "event", "of", "message"), rows)


def _slices(shown: Snapshot) -> str:
    pools = ((pool, [*nodes]) for pool, nodes in groupby(shown.nodes, key=lambda node: node.pool))
    rows = [_pool(pool, nodes) for pool, nodes in pools]
    rows += [(escape(pool), escape(topology), "none", "no host is there") for pool, topology in shown.hostless.items()]
    return table(("slice", "topology", "hosts usable", "trouble"), rows)


def _pool(name: str, nodes: list[Node]) -> tuple[str, str, str, str]:
    troubles = [f"{node.name}: {node.bad_host or node.not_ready or 'cordoned'}" for node in nodes if not node.usable]
    usable = sum(node.usable for node in nodes)
    return escape(name), escape(nodes[0].topology), f"{usable} of {len(nodes)}", escape("; ".join(troubles))


def _queues(shown: Snapshot) -> str:
    rows = [
        (
            escape(queue.name),
            escape(share.flavor),
            *map(str, (share.used, share.quota, queue.admitted, queue.pending)),
            "admits jobs" if queue.active is None or queue.active.holds else escape(queue.active.message),
        )
        for queue in shown.queues
        for share in queue.shares
    ]
    columns = ("queue", "flavor", "chips in use", "quota", "admitted", "waiting", "state")
    return table(columns, rows, numbers=range(2, 6))


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S UTC")
