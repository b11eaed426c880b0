"""Requests to a Kubernetes API server as plain JSON objects over one connection pool.

The official client reads kubeconfigs with credential plugins; its typed models are not used, since building them
costs more than the calls.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlencode

import urllib3

from infra.kubeconfig import kubeconfig

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
