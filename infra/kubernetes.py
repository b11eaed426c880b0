"""The one Kubernetes client: requests as plain JSON, watches, and who one is to a cluster."""

import json
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlencode

import urllib3

_CREDENTIAL_PLUGIN = "gke-gcloud-auth-plugin"


def kubeconfig(endpoint: str) -> str:
    """A kubeconfig without secrets: the gcloud plugin fetches a token on each use.

    It names no certificate authority: the DNS endpoint's certificate is a public one.
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


type Json = dict[str, Any]
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
CONNECTIONS = 32
_REQUEST_SECONDS = 30.0


class ApiError(RuntimeError):
    """The API server refused a request."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


UNREACHABLE = (ApiError, urllib3.exceptions.HTTPError, OSError)
"""What a request raises while the API server is away, restarting or unwilling."""


@dataclass(frozen=True)
class ApiServer:
    """One API server as one user, for any number of threads."""

    url: str
    pool: urllib3.PoolManager
    credentials: Callable[[], Mapping[str, str]] = dict[str, str]
    """Headers that are asked for anew with every request, for tokens end."""

    @classmethod
    def at(cls, endpoint: str) -> "ApiServer":
        """The GKE cluster behind a DNS endpoint, as the user of the credential plugin, which runs now.

        Raises:
            kubernetes.config.ConfigException: the plugin is missing or gives no credentials.
        """
        # Takes half a second to import, which a command that fails early does without.
        from kubernetes import client, config

        settings: Any = client.Configuration()
        config.load_kube_config_from_dict(json.loads(kubeconfig(endpoint)), client_configuration=settings)
        if not bearer(settings):
            raise config.ConfigException("the credential plugin gave no token")
        pool = urllib3.PoolManager(maxsize=CONNECTIONS)
        return cls(settings.host, pool, credentials=partial(bearer, settings))

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
    ) -> Json:
        """One call; what the API server answers.

        Raises:
            ApiError: the API server refused, or something else than one answered.
            urllib3.exceptions.HTTPError: it cannot be reached.
        """
        content = None if body is None else json.dumps(body).encode()
        answer = self._send(method, self._url(path, query), content, content_type, preload=True)
        try:
            return json.loads(answer.data)
        except ValueError:
            got = answer.data.decode(errors="replace").strip()[:200]
            raise ApiError(answer.status, "NotJson", f"expected JSON of {self.url}, got {got!r}") from None

    def find(self, path: str, query: Mapping[str, str] | None = None) -> Json | None:
        """The object at `path`, or None."""
        return self._unless_missing("GET", path, None, JSON, query)

    def patch(self, path: str, body: object, content_type: str = MERGE_PATCH) -> Json | None:
        """Patch the object at `path` and return it, or None if there is none."""
        return self._unless_missing("PATCH", path, body, content_type, None)

    def delete(self, path: str, options: Json) -> None:
        """Delete the object at `path`, if it is there."""
        self._unless_missing("DELETE", path, options, JSON, None)

    def open(
        self, path: str, query: Mapping[str, str], silence_seconds: float | None = None
    ) -> urllib3.BaseHTTPResponse:
        """Open `path` for reading without end: a watch or a log. Close the answer when done.

        After `silence_seconds` without a word the reading fails, in case the connection is dead; None: never.
        """
        return self._send("GET", self._url(path, query), None, JSON, preload=False, silence_seconds=silence_seconds)

    def ready(self) -> bool:
        """Whether the API server says that it is ready."""
        try:
            self._send("GET", self._url("/readyz", None), None, JSON, preload=True)
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

    def _url(self, path: str, query: Mapping[str, str] | None) -> str:
        return f"{self.url}{path}" + (f"?{urlencode(query)}" if query else "")

    def _send(
        self,
        method: str,
        url: str,
        content: bytes | None,
        content_type: str,
        *,
        preload: bool,
        silence_seconds: float | None = _REQUEST_SECONDS,
    ) -> urllib3.BaseHTTPResponse:
        answer = self.pool.request(
            method,
            url,
            body=content,
            headers={"Accept": JSON, "Content-Type": content_type, **self.credentials()},
            preload_content=preload,
            timeout=urllib3.Timeout(connect=_REQUEST_SECONDS, read=silence_seconds),
            # A connection that the server closed meanwhile may be opened again; nothing is asked for twice.
            retries=urllib3.Retry(connect=2, read=0, redirect=0, status=0),
        )
        if answer.status >= 300:
            raise refusal(answer.status, answer.data)
        return answer


def bearer(settings: Any) -> Mapping[str, str]:
    """The header with the token of a configuration of the official client.

    The client runs the credential plugin again when the token is about to end.
    """
    token = settings.get_api_key_with_prefix("BearerToken")
    return {"Authorization": token} if token else {}


def refusal(status: int, data: bytes) -> ApiError:
    """What an answer of this status and content says."""
    try:
        answer = json.loads(data)
        return ApiError(status, answer.get("reason", ""), answer["message"])
    except (ValueError, KeyError, AttributeError):
        return ApiError(status, "", data.decode(errors="replace").strip())


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
