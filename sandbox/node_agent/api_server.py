"""The few requests that the node agent makes to the API server, on plain JSON objects.

Owns connection, status codes and the list-and-watch loop. Plain objects, because the typed ones of
the client library cost more time to build than a pod takes to start.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3
from kubernetes import client, config

type Json = dict[str, Any]

log = logging.getLogger(__name__)

STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_REQUEST_SECONDS = 10
_RETRY_SECONDS = 0.5


class ApiError(RuntimeError):
    """The API server refused a request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the API server answered {status}: {message}")
        self.status = status


UNREACHABLE = (ApiError, urllib3.exceptions.HTTPError, client.ApiException, OSError)
"""What a request raises while the API server is away, restarting or unwilling."""


@dataclass(frozen=True)
class ApiServer:
    """A connection to one API server, for any number of threads."""

    connection: Any
    url: str

    @classmethod
    def connect(cls, kubeconfig: Path) -> "ApiServer":
        """Read `kubeconfig`; nothing is sent yet."""
        configuration: Any = client.Configuration()
        # A proxy named in the environment must not get the requests to a loopback address.
        configuration.proxy = None
        # Requests are repeated here, where it is known which of them may be.
        configuration.retries = False
        connection: Any = config.new_client_from_config(config_file=str(kubeconfig), client_configuration=configuration)
        return cls(connection, str(configuration.host))

    def get(self, path: str) -> Json | None:
        """The object at `path`, or None if there is none."""
        return self._object("GET", path)

    def patch(self, path: str, body: Json, content_type: str = STRATEGIC_MERGE_PATCH) -> Json | None:
        """Patch the object at `path` and return it, or None if there is none."""
        return self._object("PATCH", path, body, content_type)

    def delete(self, path: str, options: Json) -> None:
        """Delete the object at `path`, if it is there."""
        self._object("DELETE", path, options, "application/json")

    def open(self, path: str) -> urllib3.HTTPResponse:
        """Open `path` for reading without end: a watch."""
        return self._send("GET", path, None, "application/json", (_REQUEST_SECONDS, None))

    def _object(self, method: str, path: str, body: Json | None = None, kind: str = "application/json") -> Json | None:
        try:
            response = self._send(method, path, body, kind, (_REQUEST_SECONDS, _REQUEST_SECONDS))
        except ApiError as error:
            if error.status == 404:
                return None
            raise
        return json.loads(response.data)

    def _send(
        self, method: str, path: str, body: Json | None, content_type: str, timeout: tuple[int, int | None]
    ) -> urllib3.HTTPResponse:
        response: urllib3.HTTPResponse = self.connection.call_api(
            method,
            self.url + path,
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            _request_timeout=timeout,
        ).response
        if response.status >= 300:
            raise ApiError(response.status, response.data.decode(errors="replace"))
        return response


@dataclass
class Watch:
    """Follows one collection for ever: lists, watches, and lists again when the watch ends.

    `changed` gets every object that is new or different, `removed` the last known state of one
    that is gone, also when that happened while nobody was watching.
    """

    api: ApiServer
    path: str
    selector: Mapping[str, str]
    changed: Callable[[Json], None]
    removed: Callable[[Json], None]
    known: dict[str, Json] = field(default_factory=dict[str, Json])
    _response: urllib3.HTTPResponse | None = None
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
        found = self.api.get(f"{self.path}?{urlencode(self.selector)}")
        if found is None:
            raise ApiError(404, f"no collection {self.path}")
        present = {item["metadata"]["uid"]: item for item in found["items"]}
        for uid in self.known.keys() - present.keys():
            self.removed(self.known.pop(uid))
        for uid, item in present.items():
            self.known[uid] = item
            self.changed(item)
        return found["metadata"]["resourceVersion"]

    def _follow(self, version: str) -> None:
        query = {**self.selector, "watch": "true", "resourceVersion": version}
        self._response = self.api.open(f"{self.path}?{urlencode(query)}")
        try:
            # Closed while it was being opened: then nobody else ends it.
            events = iter(()) if self._closed.is_set() else _lines(self._response)
            for event in events:
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


def _lines(response: urllib3.HTTPResponse) -> Iterator[Json]:
    rest = b""
    for chunk in response.stream():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield json.loads(line)
