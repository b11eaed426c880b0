"""An API server over HTTP that keeps objects and does nothing by itself."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import urllib3

from cli.deployed import Deployed, JobPlace
from infra.kubernetes import ApiServer, Json
from tests.cli.api_server import serving

PLACE = JobPlace("train", "research", "team-queue")
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/research/jobsets"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/research/workloads"
PODS = "/api/v1/namespaces/research/pods"

type Change = tuple[str, str, Any, Json]
"""Method, path, body and query of a request that is to change something."""


@dataclass
class Cluster:
    """What is in it, and what was asked of it."""

    objects: dict[str, Json] = field(default_factory=dict[str, Json])
    changes: list[Change] = field(default_factory=list[Change])
    refuses: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict[tuple[str, str], tuple[int, str]])
    """By method and path."""
    says: dict[str, Json] = field(default_factory=dict[str, Json])
    """To a POST on this path, which makes no object."""

    def answer(self, change: Change) -> tuple[int, Json]:
        method, path, body, _ = change
        if refusal := self.refuses.get((method, path)):
            return refusal[0], {"kind": "Status", "reason": "Forbidden", "message": refusal[1]}
        if method == "GET":
            return self._read(path)
        if path in self.says:
            return 200, self.says[path]
        self.changes.append(change)
        return 200, body

    def _read(self, path: str) -> tuple[int, Json]:
        if path in self.objects:
            return 200, self.objects[path]
        below = [item for at, item in self.objects.items() if at.rpartition("/")[0] == path]
        if below or path in (JOBSETS, WORKLOADS, PODS):
            return 200, {"items": [item for item in below if item]}
        return 404, {"message": f"{path} not found"}


@contextmanager
def running(cluster: Cluster, storage: Path) -> Generator[Deployed]:
    """A stack with the job `train` on this cluster."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length)) if length else None
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            status, answer = cluster.answer((self.command, url.path, body, query))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as server:
        api = ApiServer(f"http://127.0.0.1:{server.server_port}", urllib3.PoolManager())
        yield Deployed("dev", {}, api, str(storage), (PLACE,))
