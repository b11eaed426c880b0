"""Follows the logs of a JobSet's hosts, line by line, while they run.

Owns connections, what to do when they break, and which pods are looked for. What a line means is up to the caller.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from infra.api_server import UNREACHABLE, ApiServer, Json

_POLL_SECONDS = 0.3
_SLICE, _HOST = "jobset.sigs.k8s.io/job-index", "batch.kubernetes.io/job-completion-index"

Which = Literal["leader", "all"]
"""The first host of the first slice, or every host."""


@dataclass(frozen=True)
class LogHost:
    """One host of a JobSet, by its place."""

    slice: int
    host: int

    @property
    def leads(self) -> bool:
        return self == LogHost(0, 0)

    def __str__(self) -> str:
        return f"slice {self.slice} host {self.host}"


LEADER = LogHost(0, 0)
"""The first host of the first slice."""

type OnLine = Callable[[LogHost, str], None]


@dataclass
class Following:
    """Threads that read logs until they are told to stop."""

    api: ApiServer
    namespace: str
    jobset: str
    which: Which
    on_line: OnLine
    _stopped: threading.Event = field(default_factory=threading.Event)
    _known: set[str] = field(default_factory=set[str])

    def start(self) -> None:
        """Begin, in threads of their own."""
        # A read may block in the socket; a daemon thread does not keep the process.
        threading.Thread(target=self._look, name=f"follow {self.jobset}", daemon=True).start()

    def stop(self) -> None:
        """Take no further line."""
        self._stopped.set()

    def _look(self) -> None:
        while not self._stopped.is_set():
            with suppress(*UNREACHABLE):
                for pod in pods(self.api, self.namespace, self.jobset):
                    host, uid = host_of(pod), pod["metadata"]["uid"]
                    if uid not in self._known and (self.which == "all" or host.leads):
                        self._known.add(uid)
                        threading.Thread(target=self._read, args=(pod, host), daemon=True).start()
            self._stopped.wait(_POLL_SECONDS)

    def _read(self, pod: Json, host: LogHost) -> None:
        """The log of a pod, from the first line not read yet after each break, until the pod has ended."""
        read = 0
        while not self._stopped.is_set():
            ended = self._phase(pod) in ("Succeeded", "Failed", None)
            with suppress(*UNREACHABLE):
                for number, line in enumerate(log_lines(self.api, pod, follow=True), 1):
                    if number > read and not self._stopped.is_set():
                        read = number
                        self.on_line(host, line)
            if ended:
                return
            time.sleep(_POLL_SECONDS)

    def _phase(self, pod: Json) -> str | None:
        with suppress(*UNREACHABLE):
            name = pod["metadata"]["name"]
            found: Any = self.api.find(f"/api/v1/namespaces/{self.namespace}/pods/{name}")
            return found["status"].get("phase") if found else None
        return "Unknown"


def follow(api: ApiServer, namespace: str, jobset: str, which: Which, on_line: OnLine) -> Following:
    """Follow the logs of the hosts of a JobSet, those that come later too, in threads of their own."""
    following = Following(api, namespace, jobset, which, on_line)
    following.start()
    return following


def pods(api: ApiServer, namespace: str, jobset: str) -> list[Json]:
    """The pods of a JobSet."""
    selector = {"labelSelector": f"jobset.sigs.k8s.io/jobset-name={jobset}"}
    return api.request("GET", f"/api/v1/namespaces/{namespace}/pods", query=selector)["items"]


def host_of(pod: Json) -> LogHost:
    """The place of a pod in its JobSet."""
    labels = pod["metadata"]["labels"]
    return LogHost(int(labels[_SLICE]), int(labels[_HOST]))


def log_lines(api: ApiServer, pod: Json, *, follow: bool) -> Iterator[str]:
    """Lines of a pod's log; with `follow`, until its container ends."""
    path = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/log"
    answer = api.open(path, {"follow": "true"} if follow else {})
    try:
        for line in answer:
            yield line.decode(errors="replace").rstrip("\n")
    finally:
        answer.close()
