"""An API server that plays collections and logs to real clients over real connections."""

import json
import ssl
import threading
from collections import defaultdict
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import urllib3

from infra.cluster.kubernetes import APPLY_PATCH, ApiServer

type Object = dict[str, Any]


@dataclass(frozen=True)
class Broken:
    """What one connection to a log brings before it breaks; None: the whole log."""

    lines: int
    half: str = ""
    """The beginning of a line after these."""


class Played(ThreadingHTTPServer):
    """Collections by path, logs by pod. Every watch brings the changes that a test sends, and then stays open."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int] = ("127.0.0.1", 0), tls: ssl.SSLContext | None = None) -> None:
        super().__init__(address, _Answer)
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)
        self.collections: defaultdict[str, list[Object]] = defaultdict(list)
        self.refused: dict[str, int] = {}
        """Status by path."""
        self.logs: dict[str, list[str]] = {}
        """Stamped lines by pod; whoever follows one waits until the pod has ended."""
        self.breaks: defaultdict[str, list[Broken]] = defaultdict(list)
        """By pod, how its next connections break."""
        self.asked: list[tuple[str, Mapping[str, str]]] = []
        self.deleted: list[tuple[str, Object]] = []
        """Names of the objects that were deleted, with the options of the request."""
        self.applied: dict[str, Object] = {}
        """What was last applied, by path with its query."""
        self.refused_changes: dict[str, str] = {}
        """Messages by path."""
        self.changed = threading.Condition()
        self.is_stopped = False
        self._events: list[tuple[str, str, Object]] = []

    def change(self, path: str, item: Object, kind: str = "MODIFIED") -> None:
        """An object of a collection is new, different or, with `DELETED`, gone."""
        with self.changed:
            others = [known for known in self.collections[path] if known["metadata"]["uid"] != item["metadata"]["uid"]]
            self.collections[path] = others if kind == "DELETED" else [*others, item]
            self._events.append((path, kind, item))
            self.changed.notify_all()

    def write(self, pod: str, *lines: str) -> None:
        """A pod prints lines, which begin with their times."""
        with self.changed:
            self.logs.setdefault(pod, []).extend(lines)
            self.changed.notify_all()

    @property
    def version(self) -> int:
        return len(self._events)

    def events(self, path: str, after: int) -> tuple[list[tuple[str, Object]], int]:
        return [(kind, item) for of, kind, item in self._events[after:] if of == path], len(self._events)

    def has_ended(self, pod: str) -> bool:
        found = [item for items in self.collections.values() for item in items if item["metadata"]["name"] == pod]
        return all(item.get("status", {}).get("phase") in ("Succeeded", "Failed") for item in found)


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Played  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        with self.server.changed:
            self.server.asked.append((url.path, query))
        try:
            self._answer(url.path, query)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            self.close_connection = True

    def do_DELETE(self) -> None:
        folder, _, name = urlsplit(self.path).path.rpartition("/")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path in self.server.refused_changes:
            self._whole(403, {"message": self.server.refused_changes[self.path], "reason": "Forbidden"})
            return
        (found,) = [item for item in self.server.collections[folder] if item["metadata"]["name"] == name]
        self.server.deleted.append((name, json.loads(body)))
        self.server.change(folder, found, "DELETED")
        self._whole(200, {})

    def do_PATCH(self) -> None:
        """Apply annotations and fields of the specification. One owner applies them: they replace what it applied.

        A merge patch has annotations only and replaces nothing.
        """
        folder, _, name = urlsplit(self.path).path.rpartition("/")
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        if self.path in self.server.refused_changes:
            self._whole(403, {"message": self.server.refused_changes[self.path], "reason": "Forbidden"})
            return
        (found,) = [item for item in self.server.collections[folder] if item["metadata"]["name"] == name]
        before: dict[str, Any] = {"metadata": {}, "spec": {}}
        if self.headers["Content-Type"] == APPLY_PATCH:
            before = self.server.applied.get(self.path, before)
            self.server.applied[self.path] = body
        own = before["metadata"].get("annotations", {})
        others = {key: text for key, text in found["metadata"].get("annotations", {}).items() if key not in own}
        metadata = {**found["metadata"], "annotations": {**others, **body["metadata"].get("annotations", {})}}
        spec = {key: item for key, item in found.get("spec", {}).items() if key not in before["spec"]}
        self.server.change(folder, {**found, "metadata": metadata, "spec": spec | body.get("spec", {})})
        self._whole(200, {})

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self, path: str, query: Mapping[str, str]) -> None:
        if path in self.server.refused:
            self._whole(self.server.refused[path], {"message": "no", "reason": "Forbidden"})
        elif path.endswith("/log"):
            self._log(path.split("/")[-2], query)
        elif query.get("watch") == "true":
            self._watch(path, int(query["resourceVersion"]))
        elif path.rpartition("/")[2] and path.rpartition("/")[0] in self.server.collections:
            folder, _, name = path.rpartition("/")
            found = [item for item in self.server.collections[folder] if item["metadata"]["name"] == name]
            self._whole(200 if found else 404, found[0] if found else {"message": "not found"})
        else:
            with self.server.changed:
                items, version = self.server.collections[path], self.server.version
            self._whole(200, {"items": items, "metadata": {"resourceVersion": str(version)}})

    def _watch(self, path: str, seen: int) -> None:
        self._begin()
        while True:
            with self.server.changed:
                found, seen = self.server.events(path, seen)
                if not found:
                    self.server.changed.wait(0.1)
            for kind, item in found:
                self._piece(json.dumps({"type": kind, "object": item}) + "\n")
            if self.server.is_stopped:
                return

    def _log(self, pod: str, query: Mapping[str, str]) -> None:
        if pod not in self.server.logs:
            self._whole(400, {"message": "container is waiting to start"})
            return
        self._begin()
        broken = self.server.breaks[pod].pop(0) if self.server.breaks[pod] else None
        since, sent, place = query.get("sinceTime", "")[:19], 0, 0
        if "tailLines" in query:
            place = max(0, len(self.server.logs[pod]) - int(query["tailLines"]))
        while True:
            with self.server.changed:
                # Asked before reading, as kubelet does.
                ended = query.get("follow") != "true" or self.server.has_ended(pod) or self.server.is_stopped
                lines, place = self.server.logs[pod][place:], len(self.server.logs[pod])
                if not lines and not ended:
                    self.server.changed.wait(0.1)
            for line in lines:
                if line[:19] < since:
                    continue
                if broken and sent == broken.lines:
                    self._piece(line[: len(broken.half)] if broken.half else "")
                    self.close_connection = True
                    return
                self._piece(line + "\n")
                sent += 1
            if ended:
                self._end()
                return

    def _whole(self, status: int, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _piece(self, text: str) -> None:
        if text:
            content = text.encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))
            self.wfile.flush()

    def _end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()


@contextmanager
def serving[Server: ThreadingHTTPServer](server: Server) -> Generator[Server]:
    """Serve until the context ends."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def playing(server: Played) -> Generator[Played]:
    """Serve until the context ends, which ends the open watches as well."""
    with serving(server):
        try:
            yield server
        finally:
            server.is_stopped = True


def client(server: Played) -> ApiServer:
    """Who asks it, without TLS."""
    host, port = server.server_address[:2]
    return ApiServer(f"http://{host!s}:{port}", urllib3.PoolManager(maxsize=32))
