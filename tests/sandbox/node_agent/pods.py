"""Pods, nodes and Jobs as the API server hands them out, for tests to vary."""

from pathlib import Path
from typing import Any

import psutil

from infra.cluster.kubernetes import Json
from sandbox.node_agent.environment import Lookup, Surroundings
from sandbox.node_agent.pod import Pod
from sandbox.site import Site

SITE = Site(Path("/nonexistent"), 201)

NODE: Json = {
    "metadata": {
        "name": "slice-0-0",
        "labels": {
            "node.kubernetes.io/instance-type": "ct6e-standard-4t",
            "cloud.google.com/gke-tpu-topology": "4x4",
        },
    },
    "status": {"allocatable": {"cpu": "44", "memory": "100Gi"}},
}


def container(name: str = "main", **fields: Any) -> Json:
    return {"name": name, "image": "unused", "command": ["true"], **fields}


def pod(name: str = "hello", *, containers: list[Json] | None = None, status: Json | None = None, **spec: Any) -> Pod:
    """A bound pod; `metadata` among the fields is merged into the metadata."""
    metadata = {"name": name, "namespace": "team", "uid": f"uid-of-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    metadata |= spec.pop("metadata", {})
    fields = {
        "containers": containers or [container()],
        "nodeName": "slice-0-0",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 30,
        **spec,
    }
    return Pod({"metadata": metadata, "spec": fields, "status": status or {}})


def surroundings(of: Pod, lookup: Lookup | None = None) -> Surroundings:
    return Surroundings(
        pod=of,
        node=NODE,
        address=SITE.pod_address(of.namespace, of.name),
        host_address=SITE.address,
        lookup=lookup or (lambda _kind, _name: None),
        token=lambda source: f"token for {source.get('expirationSeconds')} s",
    )


def runs(pid: int) -> bool:
    """Whether the process is there, and not only its exit status."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
