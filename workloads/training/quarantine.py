"""A slice with a bad host marks its nodes, so that the next start goes elsewhere.

Owns the taint, when it is not to be set, and the few requests to the API server that set it. Each pod marks its own
node, for no token of a trainer may change another (`infra.borders` renders what allows it). All nodes of the slice
are marked: without one of its hosts a slice is of no use, and its first node decides where exclusive topology puts the
rest. How a node is taken back is in docs/operations.md.

A fault of software looks the same on every host. To mark nodes for it would set aside one slice after the other,
restart after restart, and none of them would count: so nothing is marked when more than one slice is at fault, or all
hosts of the only slice, and the failure counts.
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
from workloads.training.runtime import Place, Processes

ATTEMPTS = 5
"""Another client may change the node between reading and writing: kubelet reports its status when it changes, and
controllers label and taint it."""

REQUEST_SECONDS = 5.0
PAUSE_SECONDS = 1.0

_CONFLICT = 409


class NotMarked(Exception):
    """The node could not be marked; the message says why."""


@dataclass(frozen=True)
class OwnNode:
    """The node that this pod runs on, and the way to it."""

    name: str
    url: str
    access: Path
    """Folder with `token` and `ca.crt`; kubelet renews the token."""

    @classmethod
    def of(cls, environment: Mapping[str, str], access: Path = Path(API_ACCESS_PATH)) -> Self | None:
        """The node that the variables name; None where there is none, as on a desk."""
        name, host = environment.get(NODE_VARIABLE), environment.get("KUBERNETES_SERVICE_HOST")
        port = environment.get("KUBERNETES_SERVICE_PORT")
        if not name or not host or not port or not (access / "token").exists():
            return None
        bracketed = f"[{host}]" if ":" in host else host
        return cls(name, f"https://{bracketed}:{port}", access)

    def mark(self, cause: str) -> None:
        """Keep new pods off the node, and say there why.

        Raises:
            NotMarked: the API server refuses or cannot be reached.
        """
        fault = ""
        for _ in range(ATTEMPTS):
            try:
                self._mark(cause)
            except urllib.error.HTTPError as error:
                fault = _said(error)
                if error.code != _CONFLICT and error.code < 500:
                    break
            except (OSError, ValueError, http.client.HTTPException) as error:
                fault = f"{type(error).__name__}: {error}"
            else:
                return
            time.sleep(PAUSE_SECONDS)
        raise NotMarked(fault)

    def _mark(self, cause: str) -> None:
        found = self._request("GET")
        taints = [taint for taint in found["spec"].get("taints", []) if taint["key"] != BAD_HOST_KEY]
        patch = {
            # Refused when the node has changed since: a list of taints is written as a whole.
            "metadata": {
                "resourceVersion": found["metadata"]["resourceVersion"],
                "annotations": {BAD_HOST_KEY: cause[:BAD_HOST_CHARACTERS]},
            },
            "spec": {"taints": [*taints, {"key": BAD_HOST_KEY, "effect": "NoSchedule", "timeAdded": _now()}]},
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
        # A proxy is for the world outside the cluster, and no business of the token.
        direct = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trusted)
        )
        with direct.open(request, timeout=REQUEST_SECONDS) as answer:
            return json.loads(answer.read())


def set_aside(bad: BadHost, node: OwnNode | None, place: Place, processes: Processes) -> BadHost:
    """Mark this process's node if `bad` is of its slice; the failure to end with, the same in every process.

    It counts toward the restarts when the next start may meet the same fault: when it may be one of software, or
    when any node of the slice could not be marked.
    """
    if reason := _not_of_one_slice(bad, place):
        return BadHostStays(
            f"{bad}; {reason}: look at the image, its libtpu and its permissions on the devices; no node is marked,"
            " and the restart counts",
            bad.suspects,
        )
    words = [json.loads(word) for word in processes.gather("quarantine", json.dumps(_marked(bad, node, place)))]
    asked = [word for word in words if word is not None]
    named = ", ".join(word["node"] for word in asked if not word["fault"])
    faults = "; ".join(f"{word['node']}: {word['fault']}" for word in asked if word["fault"])
    if faults:
        return BadHostStays(
            f"{bad}; its slice may be met again, for not all of its nodes could be marked {BAD_HOST_KEY}: {faults};"
            f" marked: {named or 'none'}",
            bad.suspects,
        )
    return BadHost(f"{bad}; marked {BAD_HOST_KEY}: {named}; the next start goes elsewhere", bad.suspects)


def _not_of_one_slice(bad: BadHost, place: Place) -> str:
    """Why the fault may be no host's; empty when it is that of one slice among good ones, or of a host among them."""
    if place.slice_count > 1:
        return f"{len(bad.slices)} slices at once are rather a fault of software" if len(bad.slices) > 1 else ""
    if len(bad.suspects) < len(place.hosts):
        return ""
    # A wrong sum reaches all hosts of a slice as well.
    return "whether the only slice or its software is at fault cannot be told"


def _marked(bad: BadHost, node: OwnNode | None, place: Place) -> dict[str, str] | None:
    """What became of this process's node; None when it is not asked for."""
    if place.slice not in bad.slices:
        return None
    if node is None:
        return {"node": place.host, "fault": f"no {NODE_VARIABLE} and no token in {API_ACCESS_PATH}"}
    try:
        node.mark(str(bad))
    except NotMarked as error:
        return {"node": node.name, "fault": str(error)}
    return {"node": node.name, "fault": ""}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _said(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["message"])
    except (ValueError, KeyError, TypeError, OSError, http.client.HTTPException):
        return str(error)
