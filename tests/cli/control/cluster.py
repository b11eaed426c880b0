"""An API server over HTTP that keeps objects and does nothing by itself, unless a test says what a controller does."""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import urllib3

from cli.deployed import Deployed, JobPlace
from infra.kubernetes import ApiServer, Json

PLACE = JobPlace("train", "research", "team-queue")
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/research/jobsets"
JOBSET = f"{JOBSETS}/train"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/research/workloads"
WORKLOAD = f"{WORKLOADS}/jobset-train-1"
PODS = "/api/v1/namespaces/research/pods"
PRIORITIES = "/apis/kueue.x-k8s.io/v1beta2/workloadpriorityclasses"

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
    controllers: Callable[[Change], None] = lambda _: None
    """What happens after a change."""

    def answer(self, change: Change) -> tuple[int, Json]:
        method, path, body, query = change
        if refusal := self.refuses.get((method, path)):
            return refusal[0], {"kind": "Status", "reason": "Forbidden", "message": refusal[1]}
        if method == "GET":
            return self._read(path)
        if path in self.says:
            return 200, self.says[path]
        self.changes.append(change)
        if "dryRun" in query:
            return 200, body
        found = self._change(method, path, body)
        self.controllers(change)
        return (404, {"message": f"{path} not found"}) if found is None else (200, found)

    def _read(self, path: str) -> tuple[int, Json]:
        if path in self.objects:
            return 200, self.objects[path]
        below = [item for at, item in self.objects.items() if at.rpartition("/")[0] == path]
        if below or path in (JOBSETS, WORKLOADS, PODS, PRIORITIES):
            return 200, {"items": [item for item in below if item]}
        return 404, {"message": f"{path} not found"}

    def _change(self, method: str, path: str, body: Json) -> Json | None:
        if method == "POST":
            path = f"{path}/{body['metadata']['name']}"
            self.objects[path] = body | {"metadata": {**body["metadata"], "uid": "new"}}
        elif method == "DELETE":
            return self.objects.pop(path, None)
        elif method == "PATCH":
            self.objects[path] = _merged(self.objects.get(path, {"metadata": {"uid": "new"}}), body)
        return self.objects[path]


def _merged(old: Any, new: Any) -> Any:
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    return {**old, **{key: _merged(old.get(key), value) for key, value in new.items()}}


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

        do_POST = do_PATCH = do_DELETE = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        api = ApiServer(f"http://127.0.0.1:{server.server_port}", urllib3.PoolManager())
        yield Deployed("dev", {}, api, str(storage), (PLACE,))
    finally:
        server.shutdown()
        server.server_close()


APPLIED = "pulumi-kubernetes-1a2b"
CREATED = "pulumi-kubernetes"
"""Names under which Pulumi updates an object, and under which it creates every one."""


def created(**changed: Any) -> Json:
    """A JobSet that Pulumi has created and not updated yet."""
    live = jobset(**changed)
    live["metadata"]["managedFields"][-1] |= {"manager": CREATED, "operation": "Update"}
    return live


_APPLIED_FIELDS: Json = {
    "f:metadata": {"f:labels": {"f:kueue.x-k8s.io/priority-class": {}, "f:kueue.x-k8s.io/queue-name": {}}},
    "f:spec": {
        "f:replicatedJobs": {
            'k:{"name":"slice"}': {
                ".": {},
                "f:replicas": {},
                "f:template": {
                    "f:spec": {
                        "f:template": {
                            "f:spec": {
                                "f:terminationGracePeriodSeconds": {},
                                "f:nodeSelector": {"f:topology": {}},
                                "f:containers": {'k:{"name":"trainer"}': {".": {}, "f:image": {}}},
                            }
                        }
                    }
                },
            }
        }
    },
}
_FIELDS_OF_KUEUE: Json = {
    "f:spec": {
        "f:suspend": {},
        "f:replicatedJobs": {
            'k:{"name":"slice"}': {
                "f:template": {"f:spec": {"f:template": {"f:spec": {"f:nodeSelector": {"f:slice-group": {}}}}}}
            }
        },
    }
}


def jobset(**changed: Any) -> Json:
    """A JobSet as Pulumi has applied it and Kueue admitted it."""
    pod = {
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {"topology": "2x4", "slice-group": "chosen-by-kueue"},
        "tolerations": [{"key": "google.com/tpu"}, {"key": "of-the-flavor"}],
        "containers": [{"name": "trainer", "image": "image:1"}],
    }
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": "train",
            "namespace": "research",
            "uid": "1",
            "resourceVersion": "7",
            "labels": {"kueue.x-k8s.io/queue-name": "team-queue", "kueue.x-k8s.io/priority-class": "normal"},
            "managedFields": [
                {"manager": "kueue", "operation": "Update", "fieldsV1": _FIELDS_OF_KUEUE},
                {"manager": APPLIED, "operation": "Apply", "fieldsV1": _APPLIED_FIELDS},
            ],
        },
        "spec": {
            "suspend": False,
            "replicatedJobs": [
                {"name": "slice", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": {"spec": pod}}}}
            ],
        },
        "status": {},
        **changed,
    }


def workload(*, active: bool = True, admitted: bool = True, evicted: Json | None = None) -> Json:
    """Kueue's Workload for it, with the pods as they were before it was admitted."""
    recorded = {"nodeSelector": {"topology": "2x4"}, "tolerations": [{"key": "google.com/tpu"}]}
    said = [{"type": "Admitted", "status": str(admitted)}, *([evicted] if evicted else [])]
    return {
        "metadata": {"name": "jobset-train-1", "ownerReferences": [{"kind": "JobSet", "name": "train", "uid": "1"}]},
        "spec": {"active": active, "priority": 100, "podSets": [{"name": "slice", "template": {"spec": recorded}}]},
        "status": {"conditions": said},
    }


def priorities() -> dict[str, Json]:
    """Those of the cluster, by path."""
    values = {"low": 10, "normal": 100, "high": 1000}
    return {f"{PRIORITIES}/{name}": {"metadata": {"name": name}, "value": value} for name, value in values.items()}


def pod(name: str) -> Json:
    return {"metadata": {"name": name, "labels": {"jobset.sigs.k8s.io/jobset-name": "train"}}}
