"""`multislice dashboard` serves pages about a stack to browsers on this machine, until Ctrl-C.

It listens only on loopback. Other users of the machine can reach loopback too, so every URL begins with a random token
that only the command prints. A request must name this server in its Host header. Otherwise another site could read the
pages by changing the address of its own name (DNS rebinding). A page runs no scripts and loads nothing.
"""

import math
import secrets
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from typing import Any

from rich.console import Console

from cli.answer import Halt, as_json
from cli.deployed import Deployed
from cli.explain.explain import explain
from cli.explain.finding import Finding
from cli.observed.observe import Observer, folder_of
from cli.observed.snapshot import Job, Snapshot, Summary, summary
from cli.render import duration
from infra.job_state import State
from infra.money import dollars, per_hour
from workloads.report.chart import element
from workloads.report.command import NoReport, answering, faults_of_storage, find_run
from workloads.report.history import read_history
from workloads.report.page import html_page, quiet, run_parts, section, table

ADDRESS = "127.0.0.1"
_USUAL_PORT = 80
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none';"
    " frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_LEAST_REFRESH_SECONDS = 5
_REFRESH_FACTOR = 10
"""A browser reloads a page after this many times the time that making it took, because reading a bucket is slow."""
_MOST_EVENTS = 50
_BAD = (State.DEACTIVATED, State.FAILED)


def dashboard(deployed: Deployed, port: int, console: Console, *, json: bool) -> int:
    """Serve the pages until Ctrl-C. Return the exit status. Raise Halt if the port is already in use."""
    try:
        server = Dashboard(Pages(Observer(deployed)), port)
    except OSError as fault:
        raise Halt(
            f"--port must be a free port on {ADDRESS}, got {port}: {fault}; omit it to get any free port"
        ) from None
    if json:
        console.out(as_json({"stack": deployed.stack, "url": server.url}))
        console.file.flush()
    else:
        console.print(f"stack {deployed.stack}: {server.url}\nPress Ctrl-C to stop", soft_wrap=True)
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            sys.stderr.write("the dashboard stopped; the jobs continue\n")
    return 0


class Dashboard(ThreadingHTTPServer):
    """HTTP server of the pages."""

    daemon_threads = True

    def __init__(self, pages: "Pages", port: int) -> None:
        """Listen on `port`, or on any free port if it is 0. Raise OSError if it is already in use."""
        super().__init__((ADDRESS, port), _Handler)
        self._pages = pages
        self._lock = threading.Lock()
        self.root = f"/{secrets.token_urlsafe()}/"

    @property
    def port(self) -> int:
        return self.server_address[1]

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.port}{self.root}"

    @property
    def hosts(self) -> tuple[str, ...]:
        """The values that a request's Host header may have."""
        named = (f"{ADDRESS}:{self.port}", f"localhost:{self.port}")
        # Browsers omit the default port.
        return (*named, ADDRESS, "localhost") if self.port == _USUAL_PORT else named

    def page(self, name: str) -> str | None:
        """Return the page of the job `NAMESPACE/NAME`, or of the stack if `name` is empty. None: no such page."""
        with self._lock:
            return self._pages.job(name) if name else self._pages.stack()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, unless a browser closed the connection during a response."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: Dashboard  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.headers.get("Host", "") not in self.server.hosts:
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, "expected the host that this server listens on\n")
            return
        began = time.monotonic()
        known = self.path.startswith(self.server.root)
        page = self.server.page(self.path.removeprefix(self.server.root)) if known else None
        if page is None:
            self._answer(HTTPStatus.NOT_FOUND, "expected the URL that the command printed, or the URL of a job\n")
            return
        refresh = max(_LEAST_REFRESH_SECONDS, math.ceil(_REFRESH_FACTOR * (time.monotonic() - began)))
        self._answer(HTTPStatus.OK, page, {"Content-Type": "text/html; charset=utf-8", "Refresh": str(refresh)})

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing, because requests are not of interest."""

    def _answer(self, status: HTTPStatus, content: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        usual = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(content.encode()))}
        for name, value in {**_HEADERS, **usual, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content.encode())


@dataclass
class Pages:
    """Makes pages from the current state of the cluster and the files. It is not safe for several threads at once."""

    observer: Observer
    _last: Snapshot | None = None

    def stack(self) -> str:
        shown = self._look()
        parts = [
            *_heading(shown),
            section("Jobs", _jobs(summary(job, shown.at) for job in shown.jobs)),
            section("Slices", _slices(shown)),
            section("Queues", _queues(shown)),
        ]
        return html_page(shown.stack, parts)

    def job(self, full_name: str) -> str | None:
        shown = self._look(full_name.rpartition("/")[2])
        job = next((each for each in shown.jobs if each.place.full_name == full_name), None)
        if job is None:
            return None
        findings = [part for finding in explain(shown, job) for part in _finding(finding, shown.at)]
        parts = [
            *_heading(shown),
            element("p", element("a", "all jobs", href="..")),
            section(f"{job.place.name}: {summary(job, shown.at).state}", *findings),
            section("Hosts", _hosts(job)),
            section("Events", _events(job)),
            *self._report(job),
        ]
        return html_page(f"{job.place.name} - {shown.stack}", parts)

    def _look(self, *names: str) -> Snapshot:
        """Read the stack now. If the cluster does not answer, return what was read last."""
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
            yield quiet(f"{folder}: cannot read its files: {type(fault).__name__}: {fault}")


def _heading(shown: Snapshot) -> Iterator[str]:
    yield element("h1", escape(shown.stack))
    price = "" if shown.usd_per_hour is None else f", {per_hour(shown.usd_per_hour)}"
    yield quiet(f"cluster {shown.cluster}{price}, seen at {_clock(shown.at)}")
    if not shown.answered:
        yield element("p", "The cluster does not answer. This page shows its last known state.", class_="bad")
    for note in shown.notes:
        yield quiet(note)


def _jobs(found: Iterable[Summary]) -> str:
    rows = [
        (
            element("a", escape(job.name), href=f"{job.namespace}/{job.name}"),
            element("span", job.state, class_="bad") if job.state in _BAD else escape(job.state),
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
    rows: list[tuple[str, ...]] = []
    for pool, found in groupby(shown.nodes, key=lambda node: node.pool):
        nodes = [*found]
        usable = f"{sum(node.usable for node in nodes)} of {len(nodes)}"
        bad = [f"{node.name}: {node.bad_host or node.not_ready or 'cordoned'}" for node in nodes if not node.usable]
        rows.append((escape(pool), escape(nodes[0].topology), usable, escape("; ".join(bad))))
    rows += [(escape(pool), escape(topology), "none", "has no host") for pool, topology in shown.hostless.items()]
    return table(("slice", "topology", "hosts usable", "trouble"), rows)


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
