"""The Kubernetes cluster of a kubeconfig: its connection, and the API paths of its kinds."""

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from infra.cluster.kubeconfig import SHAPE_ERRORS, CredentialsError, access
from infra.cluster.kubernetes import UNREACHABLE, ApiError, ApiServer, Json
from sandbox.providers.plugin import Refusal

_UNREACHABLE = "configured Kubernetes cluster is unreachable"
_READY_SECONDS = 5.0
_POLL_SECONDS = 0.25


class UnreachableError(Refusal):
    """Raised when the API server is unreachable."""


class UnknownKindError(Refusal):
    """Raised when the API server does not serve the kind (yet), because its CustomResourceDefinition is missing."""


@dataclass(frozen=True)
class Kind:
    """Where the API serves the objects of one kind."""

    group_path: str
    plural: str
    namespaced: bool

    def path(self, namespace: str | None, name: str = "") -> str:
        scope = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{self.group_path}{scope}/{self.plural}/{name}".rstrip("/")


@dataclass(frozen=True)
class Cluster:
    """One API server, used as one user, and the kinds that it serves. Thread-safe."""

    server: ApiServer
    _kinds: dict[str, dict[str, Kind]] = field(default_factory=dict[str, dict[str, Kind]])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def connect(cls, kubeconfig: str, context: str | None) -> "Cluster":
        """Return the cluster of a kubeconfig's content or path. Its credential plugin runs whenever a token expires.

        Raises UnreachableError if the API server does not answer, or the kubeconfig does not name one.
        """
        text = Path(kubeconfig).expanduser().read_text() if is_path(kubeconfig) else kubeconfig
        try:
            server = ApiServer.of(access([(yaml.safe_load(text), Path())], context, "it"))
        except (CredentialsError, *SHAPE_ERRORS) as error:
            raise UnreachableError(f"{_UNREACHABLE}: unable to load the kubeconfig: {error}") from None
        wait_ready(server)
        return cls(server)

    def kind(self, api_version: str, kind: str) -> Kind:
        """Return the API path of `kind`. The API server is asked once, and again while it does not serve the kind.

        Raises UnknownKindError if it is not served.
        """
        with self._lock:
            if kind not in self._kinds.get(api_version, {}):
                self._kinds[api_version] = self._served(api_version)
            if kind not in self._kinds[api_version]:
                raise UnknownKindError(f'no matches for kind "{kind}" in version "{api_version}"')
            return self._kinds[api_version][kind]

    def _served(self, api_version: str) -> dict[str, Kind]:
        path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        listed: list[Json] = (self.server.find(path) or {}).get("resources", [])
        return {
            item["kind"]: Kind(path, item["name"], item["namespaced"]) for item in listed if "/" not in item["name"]
        }


def is_path(kubeconfig: str) -> bool:
    """Return whether the text names a kubeconfig file instead of being one."""
    return "\n" not in kubeconfig and not kubeconfig.startswith("{")


def wait_ready(server: ApiServer) -> None:
    """Return when the API server reports that it is ready.

    A server that answers gets some seconds to become ready. One that does not answer gets none, because the sandbox
    waits for its control plane before it starts the engine. Raises UnreachableError if the server does not answer, or
    does not become ready.
    """
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        try:
            server.open("/readyz", {}).close()
            return
        except UNREACHABLE as error:
            late = f"{server.url} is not ready after {_READY_SECONDS:g} s"
            state = late if isinstance(error, ApiError) else f"no answer at {server.url}"
            if state != late or time.monotonic() > deadline:
                raise UnreachableError(
                    f"{_UNREACHABLE}: unable to load schema information from the API server: {state}: {error};"
                    " start the sandbox with `multislice up`"
                ) from None
        time.sleep(_POLL_SECONDS)
