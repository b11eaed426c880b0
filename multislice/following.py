"""Follows the output of a JobSet's hosts until it has ended.

Owns connections, what to do when they break, and which pods are looked for. What a line means is up to the caller.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from infra.api_server import UNREACHABLE, ApiServer, Json

_POLL_SECONDS = 0.2
_LOOK_SECONDS = 0.4
_LAST_WORDS_SECONDS = 10.0
_SLICE, _HOST = "jobset.sigs.k8s.io/job-index", "batch.kubernetes.io/job-completion-index"
_JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets"
_PODS = "/api/v1/namespaces/{}/pods"

LEADER = "slice-0-0"
"""Name of the first host of the first slice."""

type Which = Callable[[str], bool]
"""The hosts whose output is wanted, by their names within the job, such as `slice-0-1`."""


@dataclass(frozen=True)
class Line:
    """One line of a host's output."""

    host: str
    text: str


def leader(name: str) -> bool:
    """Host 0 of slice 0 alone."""
    return name == LEADER


def hosts(_: str) -> bool:
    """All of them."""
    return True


def follow(api: ApiServer, namespace: str, jobset: str, which: Which, on_line: Callable[[Line], None]) -> None:
    """Call `on_line`, in this thread, with each line that those hosts print, until the JobSet has ended or is gone."""
    following, ended_at = _Following(api, namespace, jobset, which), None
    looked_at = 0.0
    while ended_at is None or (time.monotonic() < ended_at + _LAST_WORDS_SECONDS and not following.all_told()):
        with suppress(queue.Empty):
            on_line(following.lines.get(timeout=_POLL_SECONDS))
            continue
        if time.monotonic() > looked_at + _LOOK_SECONDS:
            looked_at = time.monotonic()
            with suppress(*UNREACHABLE):
                ended = following.ended()
                following.look()
                ended_at = ended_at or (looked_at if ended else None)


@dataclass
class _Following:
    api: ApiServer
    namespace: str
    jobset: str
    which: Which
    lines: "queue.Queue[Line]" = field(default_factory=lambda: queue.Queue[Line]())
    _readers: dict[str, threading.Thread] = field(default_factory=dict[str, threading.Thread])
    """By uid of the pod."""

    def ended(self) -> bool:
        found = self.api.find(f"{_JOBSETS.format(self.namespace)}/{self.jobset}")
        return found is None or "terminalState" in found.get("status", {})

    def look(self) -> None:
        """Begin to read the pods that are new."""
        for pod in pods(self.api, self.namespace, self.jobset):
            uid = pod["metadata"]["uid"]
            if uid not in self._readers and self.which(host_of(pod)):
                # A read may block in the socket; a daemon thread does not keep the process.
                self._readers[uid] = threading.Thread(target=self._read, args=(pod,), daemon=True)
                self._readers[uid].start()

    def all_told(self) -> bool:
        return self.lines.empty() and not any(reader.is_alive() for reader in self._readers.values())

    def _read(self, pod: Json) -> None:
        """The log of a pod, from the first line not read yet after each break, until the pod has ended."""
        read, ended = 0, False
        while not ended:
            with suppress(*UNREACHABLE):
                found = self.api.find(f"{_PODS.format(self.namespace)}/{pod['metadata']['name']}")
                ended = found is None or found["status"].get("phase") in ("Succeeded", "Failed")
                for number, text in enumerate(log_lines(self.api, pod, follow=True), 1):
                    if number > read:
                        read = number
                        self.lines.put(Line(host_of(pod), text))
            if not ended:
                time.sleep(_POLL_SECONDS)


def pods(api: ApiServer, namespace: str, jobset: str) -> list[Json]:
    """The pods of a JobSet."""
    selector = {"labelSelector": f"jobset.sigs.k8s.io/jobset-name={jobset}"}
    return api.request("GET", _PODS.format(namespace), query=selector)["items"]


def host_of(pod: Json) -> str:
    """Name of a pod's host within its job."""
    labels = pod["metadata"]["labels"]
    return f"slice-{labels[_SLICE]}-{labels[_HOST]}"


def log_lines(api: ApiServer, pod: Json, *, follow: bool) -> Iterator[str]:
    """Lines of a pod's log; with `follow`, until its container ends."""
    path = f"{_PODS.format(pod['metadata']['namespace'])}/{pod['metadata']['name']}/log"
    answer = api.open(path, {"follow": "true"} if follow else {})
    try:
        for line in answer:
            yield line.decode(errors="replace").rstrip("\n")
    finally:
        answer.close()
