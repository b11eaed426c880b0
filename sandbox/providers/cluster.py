"""The Kubernetes cluster of a kubeconfig: how to reach it, and which path serves which kind."""

import os
import ssl
import tempfile
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import urllib3
import yaml
from kubernetes import client, config

from infra.kubernetes import CONNECTIONS, UNREACHABLE, ApiError, ApiServer, bearer
from sandbox.providers.plugin import Refusal
from sandbox.providers.values import Object

_UNREACHABLE = "configured Kubernetes cluster is unreachable"
_READY_SECONDS = 5.0
_POLL_SECONDS = 0.25


class UnreachableError(Refusal):
    """The API server does not answer."""


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


@dataclass(frozen=True)
class Cluster:
    """One API server as one user, and the kinds it serves. Thread-safe."""

    server: ApiServer
    _kinds: dict[str, dict[str, Kind]] = field(default_factory=dict[str, dict[str, Kind]])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def connect(cls, kubeconfig: str, context: str | None) -> "Cluster":
        """The cluster of a kubeconfig's content or path; a credential plugin it names runs whenever a token ends.

        Raises:
            UnreachableError: the API server does not answer, or the kubeconfig names none.
        """
        settings: Any = client.Configuration()
        text = Path(kubeconfig).expanduser().read_text() if is_path(kubeconfig) else kubeconfig
        with tempfile.TemporaryDirectory() as keys:
            try:
                config.load_kube_config_from_dict(
                    yaml.safe_load(text), context, settings, persist_config=False, temp_file_path=keys
                )
            except config.ConfigException as error:
                raise UnreachableError(f"{_UNREACHABLE}: unable to load the kubeconfig: {error}") from None
            # Like every Go program, trust SSL_CERT_FILE where the kubeconfig names no authority.
            trust = ssl.create_default_context(cafile=settings.ssl_ca_cert or os.environ.get("SSL_CERT_FILE"))
            if settings.cert_file:
                trust.load_cert_chain(settings.cert_file, settings.key_file)
        pool = urllib3.PoolManager(maxsize=CONNECTIONS, ssl_context=trust)
        server = ApiServer(str(settings.host), pool, credentials=partial(bearer, settings))
        wait_ready(server)
        return cls(server)

    def kind(self, api_version: str, kind: str) -> Kind:
        """Where `kind` is served; asked once, and again while the API server does not know it.

        Raises:
            UnknownKindError: it is not served.
        """
        with self._lock:
            if kind not in self._kinds.get(api_version, {}):
                self._kinds[api_version] = self._served(api_version)
            if kind not in self._kinds[api_version]:
                raise UnknownKindError(f'no matches for kind "{kind}" in version "{api_version}"')
            return self._kinds[api_version][kind]

    def _served(self, api_version: str) -> dict[str, Kind]:
        path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        listed: list[Object] = (self.server.find(path) or {}).get("resources", [])
        return {
            item["kind"]: Kind(path, item["name"], item["namespaced"]) for item in listed if "/" not in item["name"]
        }


def is_path(kubeconfig: str) -> bool:
    """Whether the text names a kubeconfig file instead of being one."""
    return "\n" not in kubeconfig and not kubeconfig.startswith("{")


def wait_ready(server: ApiServer) -> None:
    """Return when the API server says that it is ready.

    One that answers is given some seconds; one that does not answer is given none, since whoever starts
    the control plane waits for it before the engine starts.

    Raises:
        UnreachableError: it does not answer, or is not ready.
    """
    deadline = time.monotonic() + _READY_SECONDS
    while reason := _unready(server):
        answered = isinstance(reason, ApiError)
        if not answered or time.monotonic() > deadline:
            told = f"{server.url} is not ready after {_READY_SECONDS:g} s" if answered else f"no answer at {server.url}"
            raise UnreachableError(
                f"{_UNREACHABLE}: unable to load schema information from the API server: {told}: {reason};"
                " start the sandbox with `make up`"
            )
        time.sleep(_POLL_SECONDS)


def _unready(server: ApiServer) -> Exception | None:
    try:
        server.open("/readyz", {}).close()
    except UNREACHABLE as error:
        return error
    return None
