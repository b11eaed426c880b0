"""The HTTPS endpoint that `kubectl logs` reaches through the API server, and the times of log lines.

A container writes to its log file directly, so that the log outlives the agent. The times of lines, for `--timestamps`
and `--since`, are those at which this server noticed that the file had grown; it checks several times a second. All
lines that were written before this agent started have the time of the last of them.
"""

import bisect
import logging
import re
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO
from urllib.parse import parse_qs, urlsplit

from sandbox.node_agent.container import log_file
from sandbox.site import Site

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
"""Seconds between two checks of a log."""
_NANOSECONDS = 1_000_000_000
_LOG_PATH = re.compile(r"/containerLogs/([a-z0-9.-]+)/([a-z0-9.-]+)/([a-z0-9.-]+)")

_Growth = tuple[list[int], list[int]]
"""Sizes of a file at each check, and the times of the checks in nanoseconds since the epoch."""

type Runs = Callable[[str, str, str], bool]
"""Whether a container, by namespace, pod and name, has not ended."""


@dataclass
class LogTimes:
    """Times of the lines of all logs below one folder."""

    folder: Path
    _seen: dict[int, _Growth] = field(default_factory=dict[int, _Growth])
    """By inode."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, closing: threading.Event) -> None:
        while not closing.wait(_POLL_SECONDS):
            for path in self.folder.glob("*/*.log"):
                self.look(path)

    def look(self, path: Path) -> int:
        """Record the current size of the log and return it."""
        try:
            found = path.stat()
        except FileNotFoundError:
            return 0
        with self._lock:
            if found.st_ino not in self._seen:
                self._seen[found.st_ino] = ([], [])
            sizes, times = self._seen[found.st_ino]
            if found.st_size > (sizes[-1] if sizes else 0):
                sizes.append(found.st_size)
                times.append(found.st_mtime_ns if len(sizes) == 1 else time.time_ns())
        return found.st_size

    def lines(self, file: BinaryIO, path: Path, until: int, *, ended: bool) -> Iterator[tuple[int, bytes]]:
        """Yield the lines from the file's position up to `until`, each with its time, no two with the same.

        An incomplete last line is left for later, unless the log has `ended`.
        """
        with self._lock:
            sizes, times = ([*kept] for kept in self._seen[path.stat().st_ino])
        block, counted = -1, 0
        while (begin := file.tell()) < until:
            line = file.readline(until - begin)
            if not line.endswith(b"\n") and not ended:
                file.seek(begin)
                return
            place = min(bisect.bisect_left(sizes, begin + len(line)), len(times) - 1)
            earlier = sizes[place - 1] if place else 0
            if place != block:
                # A line's number within its block must not depend on where the reading began.
                block, counted = place, _lines_between(file, earlier, begin)
            yield times[place] + counted, line
            counted += 1


def _lines_between(file: BinaryIO, begin: int, end: int) -> int:
    position = file.tell()
    file.seek(begin)
    count = file.read(max(0, end - begin)).count(b"\n")
    file.seek(position)
    return count


class KubeletServer(ThreadingHTTPServer):
    """Serves logs of one site's pods to clients with a certificate of its authority."""

    daemon_threads = True

    def __init__(self, site: Site, runs: Runs, times: LogTimes) -> None:
        super().__init__((site.address, site.kubelet_port), _Handler)
        self.site = site
        self.runs = runs
        self.times = times
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(site.pki / "ca.crt"))
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(site.pki / "kubelet.crt", site.pki / "kubelet.key")
        # The handshake runs in the connection's own thread, or one slow client would block all others.
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log the error that ended a request; `kubectl logs --follow` ends by breaking its connection."""
        broken = isinstance(sys.exception(), OSError)
        log.log(logging.DEBUG if broken else logging.ERROR, "request of %s", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: KubeletServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query, keep_blank_values=True)
        if asked := _LOG_PATH.fullmatch(url.path):
            namespace, pod, container = asked.groups()
            self._log(namespace, pod, container, {key: values[0] for key, values in query.items()})
        else:
            self._refuse()

    def _log(self, namespace: str, pod: str, container: str, query: Mapping[str, str]) -> None:
        folders = (self.server.site.logs / "pods").glob(f"{namespace}_{pod}_*")
        previous = query.get("previous") == "true"
        paths = [log_file(self.server.site, folder.name, container, previous=previous) for folder in folders]
        path = max((path for path in paths if path.exists()), key=lambda path: path.stat().st_mtime, default=None)
        if path is None:
            self._answer(HTTPStatus.NOT_FOUND, f"container {container} of pod {namespace}/{pod} has no such log")
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()

        run = path.stat().st_ino

        def continues() -> bool:
            # The next run of the container has another file.
            same = path.exists() and path.stat().st_ino == run
            return query.get("follow") == "true" and same and self.server.runs(namespace, pod, container)

        for block in log_blocks(path, self.server.times, Wanted.of(query), continues):
            self.wfile.write(block)
            self.wfile.flush()

    def do_POST(self) -> None:
        self._refuse()

    def log_message(self, format: str, *args: object) -> None:
        """Log no requests."""

    def _answer(self, status: HTTPStatus, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def _refuse(self) -> None:
        self._answer(HTTPStatus.NOT_IMPLEMENTED, "pods are local processes here, and only their logs are served")


@dataclass(frozen=True)
class Wanted:
    """Which lines of a log to send, and how."""

    tail_lines: int | None = None
    since_ns: int = 0
    timestamps: bool = False

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Wanted":
        """Parse the query of a request as the Kubernetes API defines it."""
        since = 0
        if "sinceTime" in query:
            since = int(datetime.fromisoformat(query["sinceTime"]).timestamp()) * _NANOSECONDS
        elif "sinceSeconds" in query:
            since = time.time_ns() - int(query["sinceSeconds"]) * _NANOSECONDS
        tail = int(query["tailLines"]) if "tailLines" in query else None
        return cls(tail, since, query.get("timestamps") == "true")

    def format(self, at_ns: int, line: bytes) -> bytes:
        if not self.timestamps:
            return line
        seconds, rest = divmod(at_ns, _NANOSECONDS)
        stamp = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z"
        return b"%s %s" % (stamp.encode(), line)


def log_blocks(path: Path, times: LogTimes, wanted: Wanted, continues: Callable[[], bool]) -> Iterator[bytes]:
    """Yield the wanted lines of a log until its end, or longer while it `continues`."""
    tail_lines = wanted.tail_lines
    with path.open("rb") as file:
        while True:
            # Checked before reading, so that the last lines of a container are read as well.
            more = continues()
            lines = [
                wanted.format(at, line)
                for at, line in times.lines(file, path, times.look(path), ended=not more)
                if at >= wanted.since_ns
            ]
            if block := b"".join(lines[max(0, len(lines) - tail_lines) :] if tail_lines is not None else lines):
                yield block
            if not more:
                return
            tail_lines = None
            time.sleep(_POLL_SECONDS)
