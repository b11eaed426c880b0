"""A connection to a Kubernetes API server: kubeconfig, requests, and which path serves which kind.

The official client reads the kubeconfig (with credential plugins); requests are plain JSON over
one connection pool, since its models would cost more than the calls.
"""

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

import urllib3
import yaml
from kubernetes import client, config  # pyright: ignore[reportMissingTypeStubs]

from sandbox.providers.plugin import Refusal
from sandbox.providers.values import Object

_CONNECTIONS = 32
_START_SECONDS = 60.0
"""How long a control plane may take to answer after the engine started."""
_POLL_SECONDS = 0.25


class ApiError(Refusal):
    """An answer other than 2xx of the API server."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class UnknownKindError(Refusal):
    """The API server serves no such kind (yet): its CustomResourceDefinition is missing."""


@dataclass(frozen=True)
class Kind:
    """Where the API serves the objects of one kind."""

    group_path: str
    plural: str
    namespaced: bool

    def path(self, namespace: str | None, name: str = "") -> str:
        """Path of one object, or of the collection."""
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{self.group_path}{scope}/{self.plural}/{name}".rstrip("/")


class ApiServer:
    """One API server as one user. Thread-safe."""

    def __init__(self, kubeconfig: str, context: str | None = None) -> None:
        """Connect by a kubeconfig's content or path; a credential plugin it names is run once."""
        settings = _client_settings(kubeconfig, context)
        self._url = str(settings.host)
        self._headers = {"Accept": "application/json"}
        token = settings.get_api_key_with_prefix("authorization")
        if token is not None:
            self._headers["Authorization"] = str(token)
        self._pool = urllib3.PoolManager(
            maxsize=_CONNECTIONS,
            block=False,
            # Like every Go program, trust SSL_CERT_FILE where the kubeconfig names no authority.
            ca_certs=settings.ssl_ca_cert or os.environ.get("SSL_CERT_FILE"),
            cert_file=settings.cert_file,
            key_file=settings.key_file,
        )
        self._kinds: dict[str, dict[str, Kind]] = {}
        self._kinds_lock = threading.Lock()

    def wait_ready(self) -> None:
        """Block until the API server says that it is ready.

        Raises:
            Refusal: it did not within a minute.
        """
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                self._send("GET", "/readyz", None, {}, "")
                return
            except (urllib3.exceptions.HTTPError, ApiError) as error:
                if time.monotonic() > deadline:
                    message = f"{self._url} is not ready after {_START_SECONDS:g} s ({error}); start it with `make up`"
                    raise Refusal(f"configured Kubernetes cluster is unreachable: {message}") from None
                time.sleep(_POLL_SECONDS)

    def request(
        self,
        method: str,
        path: str,
        body: Object | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Object:
        """One call; returns the object that the API server answers.

        Raises:
            ApiError: the API server refused.
            Refusal: the API server cannot be reached.
        """
        try:
            return json.loads(self._send(method, path, body, query or {}, content_type))
        except urllib3.exceptions.HTTPError as error:
            raise Refusal(f"configured Kubernetes cluster is unreachable: {error}") from None

    def find(self, path: str) -> Object | None:
        """The object at `path`, or None."""
        try:
            return self.request("GET", path)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def kind(self, api_version: str, kind: str) -> Kind:
        """Where `kind` is served; asked once, and again while the API server does not know it.

        Raises:
            UnknownKindError: it is not served.
        """
        with self._kinds_lock:
            if kind not in self._kinds.get(api_version, {}):
                self._kinds[api_version] = self._served(api_version)
            try:
                return self._kinds[api_version][kind]
            except KeyError:
                raise UnknownKindError(f'no matches for kind "{kind}" in version "{api_version}"') from None

    def _served(self, api_version: str) -> dict[str, Kind]:
        path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        resources = cast(list[Object], (self.find(path) or {}).get("resources", []))
        return {
            item["kind"]: Kind(path, item["name"], item["namespaced"]) for item in resources if "/" not in item["name"]
        }

    def _send(self, method: str, path: str, body: Object | None, query: Mapping[str, str], content_type: str) -> bytes:
        url = f"{self._url}{path}" + (f"?{urlencode(query)}" if query else "")
        content = None if body is None else json.dumps(body).encode()
        headers = self._headers | {"Content-Type": content_type} if content else self._headers
        # A connection that the server closed meanwhile may be opened again; an answer is never asked for twice.
        retries = urllib3.Retry(connect=2, read=0, redirect=0, status=0)
        answer = self._pool.request(method, url, body=content, headers=headers, retries=retries)
        if answer.status >= 300:
            raise _error(answer.status, answer.data)
        return answer.data


def _client_settings(kubeconfig: str, context: str | None) -> Any:
    settings: Any = client.Configuration()
    text = Path(kubeconfig).expanduser().read_text() if "\n" not in kubeconfig and kubeconfig[:1] != "{" else kubeconfig
    loader: Any = config.load_kube_config_from_dict
    loader(yaml.safe_load(text), context=context, client_configuration=settings, persist_config=False)
    return settings


def _error(status: int, data: bytes) -> ApiError:
    try:
        answer = json.loads(data)
        return ApiError(status, answer.get("reason", ""), answer["message"])
    except (ValueError, KeyError, AttributeError):
        return ApiError(status, "", data.decode(errors="replace").strip())
