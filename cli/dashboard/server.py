"""`multislice dashboard`: serves the pages to browsers of this machine, until Ctrl-C.

It listens only on loopback. Every address begins with a random token that only the command prints, because other users
of the machine reach loopback too. A request must name this server as its host, or a foreign page could read it by
changing the address of its name (DNS rebinding). A page runs no scripts and loads nothing.
"""

import math
import secrets
import sys
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rich.console import Console

from cli.dashboard.pages import Pages
from cli.deployed import Deployed
from cli.halt import Halt
from cli.observed.json import as_json
from cli.observed.observe import Observer

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
"""A browser loads a page again after so many times as long as it took to make: reading a bucket takes a while."""


class Dashboard(ThreadingHTTPServer):
    """The server; `port` 0 is a free one."""

    daemon_threads = True

    def __init__(self, pages: Pages, port: int) -> None:
        """Listen.

        Raises:
            OSError: the port is taken.
        """
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
        """What a request may call this server."""
        named = (f"{ADDRESS}:{self.port}", f"localhost:{self.port}")
        # Browsers leave the usual port out.
        return (*named, ADDRESS, "localhost") if self.port == _USUAL_PORT else named

    def page(self, name: str) -> str | None:
        """Return the page of that name: empty for the stack's, `NAMESPACE/NAME` for a job's; None: there is none."""
        with self._lock:
            return self._pages.job(name) if name else self._pages.stack()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle of an answer is no error."""
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
            self._answer(HTTPStatus.NOT_FOUND, "expected the address that the command printed, or that of a job\n")
            return
        refresh = max(_LEAST_REFRESH_SECONDS, math.ceil(_REFRESH_FACTOR * (time.monotonic() - began)))
        self._answer(HTTPStatus.OK, page, {"Content-Type": "text/html; charset=utf-8", "Refresh": str(refresh)})

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet: requests are no news."""

    def _answer(self, status: HTTPStatus, content: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        usual = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(content.encode()))}
        for name, value in {**_HEADERS, **usual, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content.encode())


def dashboard(deployed: Deployed, port: int, console: Console, *, json: bool) -> int:
    """Serve until Ctrl-C; return the exit status.

    Raises:
        Halt: the port is taken.
    """
    try:
        server = Dashboard(Pages(Observer(deployed)), port)
    except OSError as fault:
        raise Halt(f"--port must be a free one on {ADDRESS}, got {port}: {fault}; leave it out to get one") from None
    if json:
        console.out(as_json({"stack": deployed.stack, "url": server.url}))
        console.file.flush()
    else:
        console.print(f"stack {deployed.stack}: {server.url}\nEnd with Ctrl-C", soft_wrap=True)
    with server:
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            sys.stderr.write("the dashboard stopped; the jobs go on\n")
    return 0
