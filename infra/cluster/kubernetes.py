"""The program's Kubernetes client: requests with plain JSON objects over one connection pool, and watches.

The official client is not used, because building its models takes longer than the requests. Nothing here imports
Pulumi, so that commands that only look at a cluster start quickly."""

import json
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlencode

import urllib3
from urllib3.util import parse_url

from infra.cluster.kubeconfig import Access, CredentialsError, Json, access, read_access

log = logging.getLogger(__name__)

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"

CONNECTIONS = 32
_REQUEST_SECONDS = 30.0
_RETRY_SECONDS = 0.5
_CREDENTIAL_PLUGIN = "gke-gcloud-auth-plugin"
_NAMESPACED = ("workloads", "localqueues")
"""Kinds of objects of a namespace that the program lists in all namespaces."""


class ApiError(RuntimeError):
    """Raised when the API server refuses a request."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


UNAUTHORIZED = 401
"""Status of a request without credentials that the API server accepts."""
FORBIDDEN = 403
"""Status of a request that the user may not make."""
UNREACHABLE = (ApiError, CredentialsError, urllib3.exceptions.HTTPError, OSError)
"""Errors that a request raises while the API server is unreachable, restarting or refusing requests."""


def kubeconfig(endpoint: str) -> str:
    """Return a kubeconfig without secrets. The gcloud plugin fetches a token on each use.

    It has no certificate authority, because the DNS endpoint has a public certificate.
    """
    name = "cluster"
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": _CREDENTIAL_PLUGIN,
        "installHint": f"run `gcloud components install {_CREDENTIAL_PLUGIN}`",
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": f"https://{endpoint}"}}],
            "users": [{"name": name, "user": {"exec": plugin}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    )


@dataclass(frozen=True)
class ApiServer:
    """One API server, used as one user, from any number of threads."""

    url: str
    pool: urllib3.PoolManager
    credentials: Callable[[], Mapping[str, str]] = dict[str, str]
    """Returns the headers of a request. It is called for every request, because tokens expire."""

    @classmethod
    def at(cls, endpoint: str) -> "ApiServer":
        """Return the GKE cluster behind a DNS endpoint, as the user of the credential plugin, which this call runs.

        Raise CredentialsError if the plugin is missing or returns no credentials.
        """
        return cls.of(access([(json.loads(kubeconfig(endpoint)), Path())], None, endpoint))

    @classmethod
    def of_kubeconfig(cls, file: str | None, context: str | None) -> "tuple[ApiServer, str]":
        """Return the cluster and the namespace of a context, as kubectl chooses them: by default the files in
        KUBECONFIG or ~/.kube/config, their current context, and the namespace `default`.

        Raises:
            CredentialsError: there is no such file or context, the file cannot be read, or its credential plugin fails.
        """
        found = read_access(file, context)
        return cls.of(found), found.namespace

    @classmethod
    def of(cls, access: Access) -> "ApiServer":
        """Return the API server of an access."""
        of_tls: Json = {"ssl_context": access.tls, "server_hostname": access.server_name}
        if access.proxy is None:
            return cls(access.url, urllib3.PoolManager(CONNECTIONS, **of_tls), access.credentials)
        login = urllib3.make_headers(proxy_basic_auth=unquote(parse_url(access.proxy).auth or "") or None)
        pool = urllib3.ProxyManager(access.proxy, CONNECTIONS, proxy_headers=login, **of_tls)
        return cls(access.url, pool, access.credentials)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
    ) -> Json:
        """Send one request and return the answer.

        Raises:
            ApiError: the API server refused it, or something other than an API server answered.
            urllib3.exceptions.HTTPError: the API server is unreachable.
        """
        content = None if body is None else json.dumps(body).encode()
        answer = self._send(method, path, query, content, content_type)
        with suppress(ValueError):
            if isinstance(found := json.loads(answer.data), dict):
                return found
        got = answer.data.decode(errors="replace").strip()[:200]
        raise ApiError(answer.status, "NotJson", f"expected a JSON object from {self.url}, got {got!r}")

    def find(self, path: str, query: Mapping[str, str] | None = None) -> Json | None:
        """Return the object at `path`; `None` if there is none."""
        return self._unless_missing("GET", path, None, JSON, query)

    def patch(self, path: str, body: object, content_type: str = MERGE_PATCH) -> Json | None:
        """Patch the object at `path` and return it; `None` if there is none."""
        return self._unless_missing("PATCH", path, body, content_type, None)

    def delete(self, path: str, options: Json) -> None:
        """Delete the object at `path`, if it exists."""
        self._unless_missing("DELETE", path, options, JSON, None)

    def text(self, path: str, query: Mapping[str, str] | None = None) -> str:
        return self._send("GET", path, query).data.decode(errors="replace")

    def open(
        self, path: str, query: Mapping[str, str], silence_seconds: float | None = None
    ) -> urllib3.BaseHTTPResponse:
        """Open `path` for endless reading: a watch or a log. The caller closes the response.

        After `silence_seconds` without data, reading fails, in case the connection is dead. With `None` it never fails.
        """
        return self._send("GET", path, query, preload=False, silence_seconds=silence_seconds)

    def ready(self) -> bool:
        try:
            self._send("GET", "/readyz", None)
        except UNREACHABLE:
            return False
        return True

    def _unless_missing(
        self, method: str, path: str, body: object, content_type: str, query: Mapping[str, str] | None
    ) -> Json | None:
        try:
            return self.request(method, path, body, query, content_type)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        content: bytes | None = None,
        content_type: str = JSON,
        *,
        preload: bool = True,
        silence_seconds: float | None = _REQUEST_SECONDS,
    ) -> urllib3.BaseHTTPResponse:
        answer = self.pool.request(
            method,
            f"{self.url}{path}" + (f"?{urlencode(query)}" if query else ""),
            body=content,
            headers=urllib3.HTTPHeaderDict({"Accept": JSON, "Content-Type": content_type}) | self.credentials(),
            preload_content=preload,
            timeout=urllib3.Timeout(connect=_REQUEST_SECONDS, read=silence_seconds),
            # A connection that the server closed in the meantime may be reopened, but no request is sent twice.
            retries=urllib3.Retry(connect=2, read=0, redirect=0, status=0),
        )
        if answer.status >= 300:
            raise refusal(answer.status, answer.data)
        return answer


def right(path: str) -> str:
    """Return the right that a list of the collection at `path` needs, such as `list workloads.kueue.x-k8s.io`."""
    *before, plural = path.partition("?")[0].split("/")
    group = f".{before[2]}" if before[1] == "apis" else ""
    if "namespaces" in before:
        return f"list {plural}{group} in namespace {before[-1]}"
    return f"list {plural}{group}{' in all namespaces' if plural in _NAMESPACED else ''}"


def refusal(status: int, data: bytes) -> ApiError:
    """Return the error in a response with this status and content."""
    try:
        answer = json.loads(data)
        return ApiError(status, answer.get("reason", ""), answer["message"])
    except (ValueError, KeyError, AttributeError):
        return ApiError(status, "", data.decode(errors="replace").strip() or f"HTTP {status}")


@dataclass
class Watch:
    """Follows one collection: list, watch, and list again when the watch ends.

    `changed` is called with every object that is new or different, `removed` with the last known state of a removed
    object, even if it was removed while there was no connection.
    """

    api: ApiServer
    path: str
    selector: Mapping[str, str]
    changed: Callable[[Json], None]
    removed: Callable[[Json], None]
    silence_seconds: float | None = None
    """Seconds without data after which a watch is reopened, in case its connection is dead; `None` for never."""
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
        """End `run` at once: an API server that shuts down waits for its open watches."""
        self._closed.set()
        shut(self._response)

    def _list(self) -> str:
        found = self.api.request("GET", self.path, query=self.selector)
        present = {item["metadata"]["uid"]: item for item in found["items"]}
        for uid in self.known.keys() - present.keys():
            self.removed(self.known.pop(uid))
        for item in present.values():
            self._apply("ADDED", item)
        return found["metadata"]["resourceVersion"]

    def _follow(self, version: str) -> None:
        query = {**self.selector, "watch": "true", "resourceVersion": version}
        self._response = self.api.open(self.path, query, self.silence_seconds)
        try:
            for line in self._response:
                # The last line may lack its newline, if the connection broke.
                if not line.endswith(b"\n"):
                    continue
                event = json.loads(line)
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


def shut(response: urllib3.BaseHTTPResponse | None) -> None:
    """End the reading of a response in another thread, if it has not ended."""
    if response is not None:
        try:
            response.shutdown()
        except (ValueError, RuntimeError):
            log.debug("a response had already ended")
