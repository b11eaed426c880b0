"""Serves the page and what it shows, to browsers of this machine alone.

It listens only on loopback. Every address begins with a token that only the command's user is told, because other
users of the machine reach loopback too. A request must name this server as its host, or a foreign page could read it
by changing the address of its name (DNS rebinding). The page can load from and connect to only this server.
"""

import secrets
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from cli.dashboard.feed import Feed

ADDRESS = "127.0.0.1"
_USUAL_PORT = 80
_PAGE = Path(__file__).parent / "page"
_FILES = {
    "": ("page.html", "text/html; charset=utf-8"),
    "page.css": ("page.css", "text/css; charset=utf-8"),
    "page.js": ("page.js", "text/javascript; charset=utf-8"),
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
_SIGN_OF_LIFE_SECONDS = 15.0
"""A browser that is gone is noticed when it is written to."""


class Dashboard(ThreadingHTTPServer):
    """The server; `port` 0 is a free one."""

    daemon_threads = True

    def __init__(self, feed: Feed, port: int) -> None:
        """Listen.

        Raises:
            OSError: the port is taken.
        """
        super().__init__((ADDRESS, port), _Handler)
        self.feed = feed
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

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle of an answer is no error."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: Dashboard  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.headers.get("Host", "") not in self.server.hosts:
            self._whole(HTTPStatus.MISDIRECTED_REQUEST, b"expected the host that this server listens on\n")
            return
        match self.path.removeprefix(self.server.root):
            case "events":
                self._events()
            case "state":
                self._state()
            case name if name in _FILES:
                file, kind = _FILES[name]
                self._whole(HTTPStatus.OK, (_PAGE / file).read_bytes(), kind)
            case _:
                self._whole(HTTPStatus.NOT_FOUND, b"expected the address that the command printed\n")

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet: requests are no news."""

    def _state(self) -> None:
        with self.server.feed.reading() as seen:
            found = self.server.feed.after(seen, _SIGN_OF_LIFE_SECONDS)
        if found is None:
            self._whole(HTTPStatus.SERVICE_UNAVAILABLE, b"the cluster has not answered yet\n")
        else:
            self._whole(HTTPStatus.OK, found[1].encode(), "application/json")

    def _events(self) -> None:
        """States as server-sent events, until the browser goes or the server ends."""
        self._begin(HTTPStatus.OK, "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        with self.server.feed.reading() as version:
            while not self.server.feed.closed:
                found = self.server.feed.after(version, _SIGN_OF_LIFE_SECONDS)
                if found:
                    version = found[0]
                self.wfile.write(f"data: {found[1]}\n\n".encode() if found else b": \n\n")
                self.wfile.flush()

    def _whole(self, status: HTTPStatus, content: bytes, kind: str = "text/plain; charset=utf-8") -> None:
        self._begin(status, kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _begin(self, status: HTTPStatus, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
