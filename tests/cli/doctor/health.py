"""A stack in which nothing is wrong, for tests to break, on an API server that keeps objects and does nothing else."""

import json
import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import urllib3

from cli import stack_file
from cli.deployed import Deployed, JobRef
from cli.doctor.checks import Check, Google, NotAsked, Scope, Verdict
from cli.doctor.doctor import examine
from cli.sandbox_folder import default_sandbox
from infra.cluster.kubernetes import ApiServer, Json
from infra.stack.controllers import JOBSET, KUEUE
from infra.stack.cost import BILL_OUTPUT, bill
from infra.stack.settings.stack import Settings
from tests.cli.api_server import serving

REF = JobRef("train", "research", "team-queue")
JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/research/jobsets"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/research/workloads"
PODS = "/api/v1/namespaces/research/pods"
KUEUE_API = "/apis/kueue.x-k8s.io/v1beta2"
NODE = "/api/v1/nodes/pool-0-host-0"
QUEUE = f"{KUEUE_API}/clusterqueues/research"
LOCAL_QUEUE = f"{KUEUE_API}/namespaces/research/localqueues/research"
CONTROLLER = "/apis/apps/v1/namespaces/kueue-system/deployments/kueue-controller-manager"
ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/pool-0-host-0"

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
        yield Deployed("dev", {}, api, str(storage), (REF,))


def healthy() -> Cluster:
    """Two slices of two hosts, a queue of all their chips, both controllers; no job."""
    cluster = Cluster()
    for pool in range(2):
        for host in range(2):
            name = f"pool-{pool}-host-{host}"
            cluster.objects[f"/api/v1/nodes/{name}"] = node(name, f"pool-{pool}")
            lease: Json = {"metadata": {"name": name}, "spec": {"renewTime": datetime.now(UTC).isoformat()}}
            cluster.objects[f"{LEASE.rpartition('/')[0]}/{name}"] = lease
    resources = [{"name": "google.com/tpu", "nominalQuota": "16"}]
    group = {"flavors": [{"name": "trillium", "resources": resources}]}
    queue = {"metadata": {"name": "research"}, "spec": {"resourceGroups": [group]}, **said("Active")}
    cluster.objects[QUEUE] = queue
    cluster.objects[LOCAL_QUEUE] = said("Active")
    flavor: Json = {"metadata": {"name": "trillium"}, "spec": {"nodeLabels": {"slice-group": "trillium"}}}
    cluster.objects[f"{KUEUE_API}/resourceflavors/trillium"] = flavor
    cluster.objects |= {KUEUE_API: {}, "/apis/jobset.x-k8s.io/v1alpha2": {}, "/version": {"gitVersion": "v1.36.2"}}
    cluster.objects[CONTROLLER] = controller("kueue-controller-manager", KUEUE.version)
    jobset = "/apis/apps/v1/namespaces/jobset-system/deployments/jobset-controller"
    cluster.objects[jobset] = controller("jobset-controller", JOBSET.version)
    user = {"status": {"userInfo": {"username": "ada@example.com"}}}
    cluster.says["/apis/authentication.k8s.io/v1/selfsubjectreviews"] = user
    cluster.says[ACCESS] = {"status": {"allowed": True}}
    return cluster


def node(name: str, pool: str) -> Json:
    labels = {
        "cloud.google.com/gke-nodepool": pool,
        "cloud.google.com/gke-tpu-accelerator": "tpu-v6e-slice",
        "slice-group": "trillium",
    }
    status = {
        "allocatable": {"google.com/tpu": "4"},
        "nodeInfo": {"kubeletVersion": "v1.35.1"},
        **said("Ready")["status"],
    }
    return {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status}


def controller(name: str, version: str) -> Json:
    labels = {"app.kubernetes.io/version": f"v{version}"}
    return {"metadata": {"name": name, "labels": labels}, **said("Available")}


def said(condition: str, status: str = "True", message: str = "") -> Json:
    return {"status": {"conditions": [{"type": condition, "status": status, "message": message}]}}


@contextmanager
def scope(cluster: Cluster, storage: Path, google: Google | None = None) -> Generator[Scope]:
    """The stack `local` on this cluster; in the sandbox unless there is Google."""
    settings = stack_file.read(stack_file.find("local"))
    with running(cluster, storage) as stack:
        outputs = {"queues": {"research": "research"}, "cluster": "local", BILL_OUTPUT: _bill(settings)}
        standing = replace(stack, outputs=outputs)
        outside = google or NotAsked("the sandbox has no Google Cloud")
        yield Scope("local", settings, standing, "", default_sandbox() if google is None else None, outside)


def _bill(settings: Settings) -> Json:
    """Of the stack whose slices are pool-0 and pool-1."""
    answer = bill(settings, {}, None)
    groups = tuple(group.model_copy(update={"name": "pool"}) for group in answer.groups)
    return answer.model_copy(update={"groups": groups}).model_dump(exclude={"delta"})


def examined(found: Scope) -> list[Check]:
    return list(examine(found))


def faults(found: Scope) -> list[tuple[str, str, str, str]]:
    """Group, subject, finding and remedy of each check that fails."""
    return [
        (check.group, check.subject, check.says, check.fix)
        for check in examined(found)
        if check.verdict is Verdict.FAILED
    ]


def written(name: str, failing: Iterable[tuple[str, str, str, str]]) -> str:
    """Checks that fail, as a part of a golden file. Times of clocks, which differ, are left out."""
    lines = (f"{group}, {subject}: {says}\n  -> {fix}\n" for group, subject, says, fix in failing)
    return re.sub(r"\b5\d\d s\b", "9 min", f"# {name}\n{''.join(lines) or 'nothing\n'}\n")
