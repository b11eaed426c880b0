"""The HTTPS endpoint that `kubectl logs` reaches through the API server. Nothing else is offered."""

import logging
import re
import ssl
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from sandbox.node_agent.container import log_file
from sandbox.node_agent.log_times import LogTimes
from sandbox.site import Site

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_NANOSECONDS = 1_000_000_000
_LOG_PATH = re.compile(r"/containerLogs/([a-z0-9.-]+)/([a-z0-9.-]+)/([a-z0-9.-]+)")

type Runs = Callable[[str, str, str], bool]
"""Whether a container, by namespace, pod and name, runs or may run again."""


@dataclass(frozen=True)
class Container:
    """The container whose log is asked for."""

    namespace: str
    pod: str
    name: str


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
        # The handshake belongs to the connection's own thread, or one slow client would stop all.
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: object, client_address: object) -> None:
        """Note what ended a request; a connection that breaks is how `kubectl logs --follow` ends."""
        broken = isinstance(sys.exception(), OSError)
        log.log(logging.DEBUG if broken else logging.ERROR, "request of %s", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: KubeletServer  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query, keep_blank_values=True)
        if asked := _LOG_PATH.fullmatch(url.path):
            self._log(Container(*asked.groups()), {key: values[0] for key, values in query.items()})
        else:
            self._refuse()

    def _log(self, asked: Container, query: Mapping[str, str]) -> None:
        path = _find_log(self.server.site, asked, previous=query.get("previous") == "true")
        if path is None:
            self._answer(
                HTTPStatus.NOT_FOUND, f"container {asked.name} of pod {asked.namespace}/{asked.pod} has no such log"
            )
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()

        def goes_on() -> bool:
            return query.get("follow") == "true" and self.server.runs(asked.namespace, asked.pod, asked.name)

        for block in log_blocks(path, self.server.times, Wanted.of(query), goes_on):
            self.wfile.write(block)
            self.wfile.flush()

    def do_POST(self) -> None:
        self._refuse()

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet: requests are no news."""

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
    """Which lines of a log are asked for, and how."""

    tail_lines: int | None = None
    since_ns: int = 0
    timestamps: bool = False

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Wanted":
        """What the query of a request asks for, in the words of the Kubernetes API."""
        since = 0
        if "sinceTime" in query:
            since = int(datetime.fromisoformat(query["sinceTime"]).timestamp()) * _NANOSECONDS
        elif "sinceSeconds" in query:
            since = time.time_ns() - int(query["sinceSeconds"]) * _NANOSECONDS
        tail = int(query["tailLines"]) if "tailLines" in query else None
        return cls(tail, since, query.get("timestamps") == "true")

    def written(self, at_ns: int, line: bytes) -> bytes:
        """The line as it is sent."""
        return b"%s %s" % (_stamp(at_ns), line) if self.timestamps else line


def log_blocks(path: Path, times: LogTimes, wanted: Wanted, goes_on: Callable[[], bool]) -> Iterator[bytes]:
    """The wanted lines of a log until its end, or longer while it `goes_on`."""
    tail_lines = wanted.tail_lines
    with path.open("rb") as file:
        while True:
            # Asked before reading, so that the last words of a container are read as well.
            more = goes_on()
            found = [
                wanted.written(at, line)
                for at, line in times.lines(file, path, times.look(path), ended=not more)
                if at >= wanted.since_ns
            ]
            if block := b"".join(found[max(0, len(found) - tail_lines) :] if tail_lines is not None else found):
                yield block
            if not more:
                return
            tail_lines = None
            time.sleep(_POLL_SECONDS)


def _stamp(at_ns: int) -> bytes:
    seconds, rest = divmod(at_ns, _NANOSECONDS)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09}Z".encode()


def _find_log(site: Site, asked: Container, *, previous: bool) -> Path | None:
    folders = (site.logs / "pods").glob(f"{asked.namespace}_{asked.pod}_*")
    paths = [log_file(site, folder.name, asked.name, previous=previous) for folder in folders]
    return max((path for path in paths if path.exists()), key=lambda path: path.stat().st_mtime, default=None)
