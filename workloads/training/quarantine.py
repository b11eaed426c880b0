"""Taints the nodes of a slice with a bad host, so that the next attempt runs elsewhere.

Each pod taints its own node, because a trainer's token may change no other (`infra.stack.admission_policies` renders
the permission). All nodes of the slice are tainted: a slice cannot be used without one of its hosts, and its first node
determines where exclusive topology puts the others. docs/how-to/operations.md describes how to remove the taint.

A software error looks the same on every host. Tainting for it would take out one slice after the other, with restarts
that do not count. So if more than one slice is bad, or all hosts of the only slice, no node is tainted and the failure
counts.
"""

import http.client
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from workloads.spec import API_ACCESS_PATH, BAD_HOST_CHARACTERS, BAD_HOST_KEY, NODE_VARIABLE
from workloads.training.failures import BadHost, BadHostStays
from workloads.training.runtime import HostPosition, Processes

ATTEMPTS = 5
"""Number of tries. Other clients may change the node between reading and writing: kubelet reports its status, and
controllers label and taint it."""

REQUEST_SECONDS = 5.0
PAUSE_SECONDS = 1.0

_CONFLICT = 409


@dataclass(frozen=True)
class OwnNode:
    """The node of this pod and the access to it."""

    name: str
    url: str
    access: Path
    """Folder with `token` and `ca.crt`. kubelet renews the token."""

    @classmethod
    def of(cls, environment: Mapping[str, str], access: Path = Path(API_ACCESS_PATH)) -> Self | None:
        """Return the node in the environment variables. `None` if there is none, as on a workstation."""
        name, host = environment.get(NODE_VARIABLE), environment.get("KUBERNETES_SERVICE_HOST")
        port = environment.get("KUBERNETES_SERVICE_PORT")
        if not name or not host or not port or not (access / "token").exists():
            return None
        bracketed = f"[{host}]" if ":" in host else host
        return cls(name, f"https://{bracketed}:{port}", access)

    def mark(self, cause: str) -> str:
        """Keep new pods off the node, and write the reason to it. Return why the API server refuses this or cannot be
        reached, or else an empty text."""
        fault = ""
        for _ in range(ATTEMPTS):
            try:
                self._mark(cause)
            except urllib.error.HTTPError as error:
                fault = _error_text(error)
                if error.code != _CONFLICT and error.code < 500:
                    break
            except (OSError, ValueError, http.client.HTTPException) as error:
                fault = f"{type(error).__name__}: {error}"
            else:
                return ""
            time.sleep(PAUSE_SECONDS)
        return fault

    def _mark(self, cause: str) -> None:
        found = self._request("GET")
        taints = [taint for taint in found["spec"].get("taints", []) if taint["key"] != BAD_HOST_KEY]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        patch = {
            # The version makes the API server refuse the write if the node has changed, because a list of taints is
            # written as a whole.
            "metadata": {
                "resourceVersion": found["metadata"]["resourceVersion"],
                "annotations": {BAD_HOST_KEY: cause[:BAD_HOST_CHARACTERS]},
            },
            "spec": {"taints": [*taints, {"key": BAD_HOST_KEY, "effect": "NoSchedule", "timeAdded": now}]},
        }
        self._request("PATCH", json.dumps(patch).encode())

    def _request(self, method: str, body: bytes | None = None) -> dict[str, Any]:
        headers = {
            "Authorization": f"Bearer {(self.access / 'token').read_text()}",
            "Accept": "application/json",
            "Content-Type": "application/merge-patch+json",
        }
        request = urllib.request.Request(f"{self.url}/api/v1/nodes/{self.name}", body, headers, method=method)
        trusted = ssl.create_default_context(cafile=self.access / "ca.crt")
        # Proxies are for traffic outside of the cluster, and the token must not be sent to them.
        direct = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted)
        )
        with direct.open(request, timeout=REQUEST_SECONDS) as answer:
            return json.loads(answer.read())


def set_aside(bad: BadHost, node: OwnNode | None, position: HostPosition, processes: Processes) -> BadHost:
    """Mark this process's node if `bad` is about its slice, and return the failure to end with, the same everywhere.

    The failure counts as a restart if the next attempt may fail in the same way: if the cause may be software, or if a
    node of the slice could not be marked.
    """
    if reason := _not_of_one_slice(bad, position):
        return BadHostStays(
            f"{bad}; {reason}: check the image, its libtpu and its permissions on the devices; no node is marked,"
            " and the restart counts",
            bad.suspects,
        )
    marks = [mark for mark in processes.gather("quarantine", _mark_own_node(bad, node, position)) if mark]
    named = ", ".join(name for name, fault in marks if not fault)
    faults = "; ".join(f"{name}: {fault}" for name, fault in marks if fault)
    if faults:
        return BadHostStays(
            f"{bad}; its slice may be used again, because some nodes could not be marked {BAD_HOST_KEY}: {faults};"
            f" marked: {named or 'none'}",
            bad.suspects,
        )
    return BadHost(f"{bad}; marked {BAD_HOST_KEY}: {named}; the next attempt runs elsewhere", bad.suspects)


def _not_of_one_slice(bad: BadHost, position: HostPosition) -> str:
    """Return why the cause may be software. Empty if one slice among good ones, or one host among them, is bad."""
    if position.slice_count > 1:
        return f"{len(bad.slices)} bad slices at once are more likely a software error" if len(bad.slices) > 1 else ""
    if len(bad.suspects) < len(position.hosts):
        return ""
    # A wrong sum reaches all hosts of a slice as well.
    return "the cause may be the only slice or its software"


def _mark_own_node(bad: BadHost, node: OwnNode | None, position: HostPosition) -> tuple[str, str] | None:
    """Mark this process's node and return its name and any error. `None` if the node is not to be marked."""
    if position.slice not in bad.slices:
        return None
    if node is None:
        return position.host, f"no {NODE_VARIABLE} and no token in {API_ACCESS_PATH}"
    return node.name, node.mark(str(bad))


def _error_text(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["message"])
    except (ValueError, KeyError, TypeError, OSError, http.client.HTTPException):
        return str(error)
