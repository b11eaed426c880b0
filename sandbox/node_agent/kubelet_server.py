"""The HTTPS endpoint that `kubectl logs` and `kubectl exec` reach through the API server. Nothing else is offered.

Commands come on WebSockets: nodes declare `ExtendWebSocketsToKubelet`, so the API server does not translate to SPDY.
"""

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

from infra.remote_command import Container
from sandbox.node_agent import exec_session, web_socket
from sandbox.node_agent.container import log_file
from sandbox.node_agent.log_times import LogTimes
from sandbox.node_agent.pod_process import PodProcess
from sandbox.site import Site

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_NANOSECONDS = 1_000_000_000
_LOG_PATH = re.compile(r"/containerLogs/([a-z0-9.-]+)/([a-z0-9.-]+)/([a-z0-9.-]+)")
_EXEC_PATH = re.compile(r"/exec/([a-z0-9.-]+)/([a-z0-9.-]+)/([a-z0-9.-]+)")

type Runs = Callable[[str, str, str], bool]
"""Whether a container, by namespace, pod and name, runs or may run again."""
type Find = Callable[[str, str, str], PodProcess | None]
"""The process of a container, by namespace, pod and name; None: it does not run."""


class KubeletServer(ThreadingHTTPServer):
    """Serves logs of one site's pods, and commands in them, to clients with a certificate of its authority."""

    daemon_threads = True

    def __init__(self, site: Site, runs: Runs, find: Find, times: LogTimes) -> None:
        super().__init__((site.address, site.kubelet_port), _Handler)
        self.site = site
        self.runs = runs
        self.find = find
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
            self._log(_container(asked), {key: values[0] for key, values in query.items()})
        elif asked := _EXEC_PATH.fullmatch(url.path):
            self._exec(_container(asked), query)
        else:
            self._refuse()

    def _log(self, asked: Container, query: Mapping[str, str]) -> None:
        path = _find_log(self.server.site, asked, previous=query.get("previous") == "true")
        if path is None:
            self._answer(HTTPStatus.NOT_FOUND, f"{_named(asked)} has no such log")
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()

        def goes_on() -> bool:
            return query.get("follow") == "true" and self.server.runs(asked.namespace, asked.pod, asked.name)

        for block in log_blocks(path, self.server.times, Wanted.of(query), goes_on):
            self.wfile.write(block)
            self.wfile.flush()

    def _exec(self, asked: Container, query: Mapping[str, list[str]]) -> None:
        wish = exec_session.Wish.of(query)
        protocol = web_socket.chosen_protocol(self.headers, exec_session.PROTOCOLS)
        process = self.server.find(asked.namespace, asked.pod, asked.name)
        if protocol is None or not wish.command:
            self._answer(
                HTTPStatus.BAD_REQUEST, f"expected a command on a WebSocket of {' or '.join(exec_session.PROTOCOLS)}"
            )
        elif process is None:
            self._answer(HTTPStatus.NOT_FOUND, f"{_named(asked)} does not run")
        else:
            self.protocol_version = "HTTP/1.1"
            self.send_response(HTTPStatus.SWITCHING_PROTOCOLS)
            for name, value in web_socket.acceptance(self.headers, protocol).items():
                self.send_header(name, value)
            self.end_headers()
            exec_session.serve(web_socket.ServerSide(self.connection), process, wish)

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
        self._answer(
            HTTPStatus.NOT_IMPLEMENTED, "of pods, which are local processes here, only logs and commands are served"
        )


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


def _container(asked: re.Match[str]) -> Container:
    namespace, pod, name = asked.groups()
    return Container(namespace, pod, name)


def _named(asked: Container) -> str:
    return f"container {asked.name} of pod {asked.namespace}/{asked.pod}"


def _find_log(site: Site, asked: Container, *, previous: bool) -> Path | None:
    folders = (site.logs / "pods").glob(f"{asked.namespace}_{asked.pod}_*")
    paths = [log_file(site, folder.name, asked.name, previous=previous) for folder in folders]
    return max((path for path in paths if path.exists()), key=lambda path: path.stat().st_mtime, default=None)
