"""Follows one JobSet through the Kubernetes API and feeds what it sees into a display.

Owns connections and threads. What an event means is `cli.view.reduce`'s affair. Reads line by
line itself, since a break within a line must leave the piece for the next connection.
"""

import http.client
import json
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlencode

from cli.view import reduce
from cli.view.display import Display
from cli.view.snapshot import Snapshot
from sandbox.site import Site

_RETRY_SECONDS = 0.2
_SILENCE_SECONDS = 60
"""A connection that says nothing for so long is opened anew, in case it is dead."""


@dataclass(frozen=True)
class Target:
    """The JobSet to follow."""

    site: Site
    namespace: str
    jobset: str


class Watcher:
    """Watches in threads of its own; connections that break are opened again."""

    def __init__(self, target: Target, display: Display) -> None:
        """Nothing is watched yet."""
        self._target = target
        self._display = display
        self._stopped = threading.Event()
        self._reading, self._lines_read = "", 0
        self._told = ""
        self._opener = _opener(target.site)

    @contextmanager
    def watching(self) -> Generator[Self]:
        """Watch until the context ends."""
        for work in (self._jobset, self._workloads, self._pods, self._leader_log):
            # A read may block for a minute in the socket; a daemon thread does not keep the process.
            threading.Thread(target=self._forever, args=(work,), daemon=True).start()
        try:
            yield self
        finally:
            self._stopped.set()

    def drain_log(self, timeout_seconds: float) -> None:
        """Wait until the leader's log has been read to its end."""
        deadline = time.monotonic() + timeout_seconds
        while time.monotonic() < deadline:
            leader = self._display.snapshot.leader()
            if leader is None or leader.uid == self._told:
                return
            time.sleep(_RETRY_SECONDS)

    def _forever(self, work: Callable[[], None]) -> None:
        while not self._stopped.is_set():
            with suppress(OSError, http.client.HTTPException, json.JSONDecodeError):
                work()
            self._stopped.wait(_RETRY_SECONDS)

    def _jobset(self) -> None:
        selector = f"metadata.name={self._target.jobset}"
        self._follow("/apis/jobset.x-k8s.io/v1alpha2", "jobsets", reduce.jobset, fieldSelector=selector)

    def _workloads(self) -> None:
        self._follow("/apis/kueue.x-k8s.io/v1beta2", "workloads", reduce.workload)

    def _pods(self) -> None:
        selector = f"jobset.sigs.k8s.io/jobset-name={self._target.jobset}"
        self._follow("/api/v1", "pods", reduce.pod, labelSelector=selector)

    def _follow(
        self, group: str, plural: str, reducer: Callable[[Snapshot, reduce.Object, float, bool], Snapshot], **query: str
    ) -> None:
        """Feed all objects there are, then each change, until the server closes the watch."""
        path = f"{group}/namespaces/{self._target.namespace}/{plural}"
        for line in self._lines(path, watch="true", **query):
            event = json.loads(line)
            if event["type"] == "ERROR":
                return
            deleted, found = event["type"] == "DELETED", event["object"]
            self._display.change(lambda now, found=found, deleted=deleted: reducer(now, found, time.time(), deleted))

    def _leader_log(self) -> None:
        """Follow the log of the newest leader; after a broken connection, from the first line not read yet."""
        leader = self._display.snapshot.leader()
        if leader is None or leader.started is None or leader.uid == self._told:
            return
        if leader.uid != self._reading:
            self._reading, self._lines_read = leader.uid, 0
        path = f"/api/v1/namespaces/{leader.namespace}/pods/{leader.name}/log"
        for number, line in enumerate(self._lines(path, follow="true"), 1):
            if number > self._lines_read:
                self._lines_read = number
                self._display.change(lambda now, line=line: reduce.log_line(now, line))
        if leader.phase in ("Succeeded", "Failed"):
            self._told = leader.uid

    def _lines(self, path: str, **query: str) -> Iterator[str]:
        """Whole lines of an answer; a piece of a line at a break is left for the next connection."""
        address = f"{self._target.site.api_server_url}{path}?{urlencode(query)}"
        with self._opener.open(address, timeout=_SILENCE_SECONDS) as response:
            for line in response:
                if self._stopped.is_set() or not line.endswith(b"\n"):
                    return
                yield line.decode(errors="replace").rstrip("\n")


def _opener(site: Site) -> urllib.request.OpenerDirector:
    """Speaks to the API server as its administrator, never through a proxy of the environment."""
    context = ssl.create_default_context(cafile=str(site.pki / "ca.crt"))
    context.load_cert_chain(site.pki / "admin.crt", site.pki / "admin.key")
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
