"""Pods that run on this machine, with an API server that only remembers."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from infra.cluster.kubernetes import STRATEGIC_MERGE_PATCH
from sandbox.node_agent.container import log_file
from sandbox.node_agent.pod import Pod
from sandbox.node_agent.pod_worker import PodWorker
from sandbox.servers import holds_within
from sandbox.site import Site
from tests.sandbox.node_agent.pods import Json, container


@dataclass
class RecordedApi:
    """Takes every status, event and deletion, as an API server would that has nothing else to do."""

    manifest: Json
    statuses: list[Json] = field(default_factory=list[Json])
    deletions: list[Json] = field(default_factory=list[Json])
    events: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Reasons and messages."""

    def request(self, method: str, path: str, body: Json) -> None:
        assert (method, path) == ("POST", f"/api/v1/namespaces/{self.manifest['metadata']['namespace']}/events")
        self.events.append((body["reason"], body["message"]))

    def patch(self, path: str, body: Json, content_type: str) -> Json:
        assert content_type == STRATEGIC_MERGE_PATCH
        assert path.endswith(f"/{self.manifest['metadata']['name']}/status")
        assert body["metadata"] == {"uid": self.manifest["metadata"]["uid"]}
        self.statuses.append(body["status"])
        return {**self.manifest, "status": body["status"]}

    def delete(self, path: str, options: Json) -> None:
        self.deletions.append(options)

    @property
    def phases(self) -> list[str]:
        return [status["phase"] for status in self.statuses]

    def state(self) -> Json:
        return self.statuses[-1]["containerStatuses"][0]

    @property
    def conditions(self) -> dict[str, str]:
        return {each["type"]: each["status"] for each in self.statuses[-1]["conditions"]} if self.statuses else {}


@dataclass
class Trial:
    worker: PodWorker
    api: RecordedApi
    site: Site
    silent: set[str]
    broken: dict[str, str]

    def until(self, holds: Callable[[], object]) -> None:
        assert holds_within(20, lambda: bool(holds()), 0.02), f"still {self.api.statuses[-1:]}"

    def until_running(self) -> None:
        self.until(lambda: "Running" in self.api.phases)

    def until_ended(self) -> None:
        self.until(lambda: self.api.phases and self.api.phases[-1] in ("Succeeded", "Failed"))

    def delete(self, grace_seconds: float) -> None:
        """Delete the pod, and wait until it is released."""
        self.worker.delete(grace_seconds)
        self.until(lambda: self.api.deletions)

    def log(self, name: str = "main", *, previous: bool = False) -> str:
        return log_file(self.site, self.worker.pod.folder_name, name, previous=previous).read_text()

    @property
    def home(self) -> Path:
        """Folder that all containers of the pod know as $HOME."""
        return self.site.pods / self.worker.pod.folder_name / "home"


class Begin(Protocol):
    def __call__(self, me: Pod, broken: str = "") -> Trial:
        """Start a pod on a node, with the value of its `BROKEN_ANNOTATION`."""
        ...


def script(text: str, name: str = "main", **fields: Any) -> Json:
    return container(name, command=["sh", "-c", text], **fields)
