"""An API server that runs commands in one pod, by the sandbox's kubelet server, and has the objects it is given."""

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import urllib3

from infra.kubernetes import ApiServer, Json
from sandbox import certificates
from sandbox.site import create
from tests.sandbox.node_agent.containers import CLIENT, CONTAINER, POD, served, sleeping

TOKEN = "Bearer right"
_PATH = f"/api/v1/namespaces/team/pods/{POD}/exec"
_NAMES = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}


@contextmanager
def exec_server(folder: Path, objects: Mapping[str, Json] = MappingProxyType({})) -> Generator[ApiServer]:
    """The API server as a client with the right token; `objects` go by their path."""
    site = create(folder)
    certificates.ensure(site)
    with sleeping(folder) as process, served(site, process) as server:
        kubelet: Any = server.RequestHandlerClass

        class Front(kubelet):
            """Turns what a client asks an API server into what that asks a kubelet."""

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                if self.headers.get("Authorization") != TOKEN:
                    self._say(HTTPStatus.FORBIDDEN, "Forbidden", 'pods is forbidden: "exec"')
                elif url.path in objects:
                    self._answer(HTTPStatus.OK, json.dumps(objects[url.path]))
                elif url.path != _PATH:
                    self._say(HTTPStatus.NOT_FOUND, "NotFound", f"no {url.path}")
                else:
                    query = parse_qs(url.query, keep_blank_values=True)
                    asked = [(_NAMES[name], "1") for name in _NAMES if query[name] == ["true"]]
                    words = [("command", word) for word in query["command"]]
                    self.path = f"/exec/team/{POD}/{query['container'][0]}?{urlencode(asked + words)}"
                    super().do_GET()

            def _say(self, status: HTTPStatus, reason: str, message: str) -> None:
                self._answer(status, json.dumps({"kind": "Status", "reason": reason, "message": message}))

        handler: Any = Front
        server.RequestHandlerClass = handler
        pool = urllib3.PoolManager(
            ca_certs=str(site.pki / "ca.crt"),
            cert_file=str(site.pki / f"{CLIENT}.crt"),
            key_file=str(site.pki / f"{CLIENT}.key"),
        )
        url = f"https://{site.address}:{site.kubelet_port}"
        yield ApiServer(url, pool, credentials=lambda: {"Authorization": TOKEN})


__all__ = ["CONTAINER", "POD", "TOKEN", "exec_server"]
