"""Follows one collection of the Kubernetes API for ever: list, watch, and list again when the watch ends."""

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import urllib3

from infra.api_server import UNREACHABLE, ApiServer, Json

log = logging.getLogger(__name__)

_RETRY_SECONDS = 0.5


@dataclass
class Watch:
    """Calls back for every object of a collection.

    `changed` gets every object that is new or different, `removed` the last known state of one
    that is gone, also when that happened while nobody was watching.
    """

    api: ApiServer
    path: str
    selector: Mapping[str, str]
    changed: Callable[[Json], None]
    removed: Callable[[Json], None]
    silence_seconds: float | None = None
    """A watch that says nothing for so long is opened anew, in case its connection is dead; None: never."""
    known: dict[str, Json] = field(default_factory=dict[str, Json])
    _response: urllib3.BaseHTTPResponse | None = None
    _closed: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Follow until `close` is called from another thread."""
        while not self._closed.is_set():
            try:
                self._follow(self._list())
            except UNREACHABLE as error:
                log.debug("watch of %s: %s", self.path, error)
            self._closed.wait(_RETRY_SECONDS)

    def close(self) -> None:
        """End `run` at once: an API server that stops waits for its open watches."""
        self._closed.set()
        response = self._response
        if response is not None:
            try:
                response.shutdown()
            except (ValueError, RuntimeError):
                log.debug("watch of %s had ended by itself", self.path)

    def _list(self) -> str:
        found = self.api.request("GET", self.path, query=self.selector)
        present = {item["metadata"]["uid"]: item for item in found["items"]}
        for uid in self.known.keys() - present.keys():
            self.removed(self.known.pop(uid))
        for uid, item in present.items():
            self.known[uid] = item
            self.changed(item)
        return found["metadata"]["resourceVersion"]

    def _follow(self, version: str) -> None:
        query = {**self.selector, "watch": "true", "resourceVersion": version}
        self._response = self.api.open(self.path, query, self.silence_seconds)
        try:
            for event in _events(self._response):
                if self._closed.is_set() or event["type"] == "ERROR":
                    return
                self._apply(event["type"], event["object"])
        finally:
            self._response.close()
            self._response = None

    def _apply(self, kind: str, item: Json) -> None:
        uid = item["metadata"]["uid"]
        if kind == "DELETED":
            self.known.pop(uid, None)
            self.removed(item)
        else:
            self.known[uid] = item
            self.changed(item)


def _events(response: urllib3.BaseHTTPResponse) -> Iterator[Json]:
    return (json.loads(line) for line in lines(response) if line.endswith(b"\n"))


def lines(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """The lines of an answer as they come; the last one may lack its end."""
    rest = b""
    for chunk in response.stream():
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line + b"\n" for line in whole)
    if rest:
        yield rest
