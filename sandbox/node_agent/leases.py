"""Keeps the sandbox's nodes Ready: a status patch when one is not, and a Lease every ten seconds.

Not those whose machine is cut off (`SILENT_ANNOTATION`).
"""

import logging
import threading
from datetime import UTC, datetime

from infra.kubernetes import APPLY_PATCH, STRATEGIC_MERGE_PATCH, UNREACHABLE, ApiServer, Json
from sandbox.node_agent.status import timestamp
from sandbox.site import SILENT_ANNOTATION

log = logging.getLogger(__name__)

_RENEW_SECONDS = 10
_DURATION_SECONDS = 40


class Leases:
    """The heartbeat of every node that was announced."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._nodes: dict[str, Json] = {}
        self._unconfirmed: set[str] = set()
        self._wake = threading.Event()

    def announce(self, node: Json) -> None:
        """Note a node that is new or has changed."""
        uid = node["metadata"]["uid"]
        if uid not in self._nodes or not _ready(node):
            # A Lease alone does not bring back a node that was declared Unknown.
            self._unconfirmed.add(uid)
            self._wake.set()
        self._nodes[uid] = node

    def retire(self, node: Json) -> None:
        """Forget a node; its Lease goes with it, by its owner reference."""
        self._nodes.pop(node["metadata"]["uid"], None)

    def run(self, closing: threading.Event) -> None:
        """Renew until `closing` is set and `stop_waiting` was called."""
        while not closing.is_set():
            self._wake.clear()
            # A copy: nodes come and go in the thread that watches them.
            for uid, node in [(uid, node) for uid, node in list(self._nodes.items()) if not is_silent(node)]:
                try:
                    self._renew(uid, node)
                except UNREACHABLE as error:
                    log.warning("lease of node %s: %s", node["metadata"]["name"], error)
            self._wake.wait(_RENEW_SECONDS)

    def stop_waiting(self) -> None:
        """Let `run` look at its `closing` event now."""
        self._wake.set()

    def _renew(self, uid: str, node: Json) -> None:
        name = node["metadata"]["name"]
        path = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"
        query = {"fieldManager": "sandbox-node-agent", "force": "true"}
        self._api.request("PATCH", path, _lease(name, uid, datetime.now(UTC)), query, APPLY_PATCH)
        if uid in self._unconfirmed:
            status = {"status": {"conditions": [_condition(datetime.now(UTC))]}}
            self._api.patch(f"/api/v1/nodes/{name}/status", status, STRATEGIC_MERGE_PATCH)
            self._unconfirmed.discard(uid)


def is_silent(node: Json) -> bool:
    """Whether the node's machine is cut off."""
    return SILENT_ANNOTATION in node["metadata"].get("annotations", {})


def _ready(node: Json) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _condition(now: datetime) -> Json:
    return {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "the sandbox's node agent runs the pods of this node",
        "lastHeartbeatTime": timestamp(now),
        "lastTransitionTime": timestamp(now),
    }


def _lease(node: str, node_uid: str, now: datetime) -> Json:
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node, "namespace": "kube-node-lease", "ownerReferences": [owner]},
        "spec": {
            "holderIdentity": node,
            "leaseDurationSeconds": _DURATION_SECONDS,
            "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }
