from pathlib import Path
from typing import Any, cast

from infra.api_server import ApiServer
from sandbox import programs
from sandbox.providers.cloud import Cloud
from sandbox.providers.effects import ClusterEffect
from tests.chain.stack import ignore


class Requests:
    """An API server that only remembers what it is asked; what is deleted goes once somebody has looked for it."""

    def __init__(self) -> None:
        self.made: list[tuple[str, str]] = []
        self.going: set[str] = set()

    def request(self, method: str, path: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        self.made.append((method, path.rpartition("/")[2]))
        return {}

    def delete(self, path: str, options: Any) -> None:
        self.request("DELETE", path)
        self.going.add(path)

    def find(self, path: str) -> dict[str, Any] | None:
        if path not in self.going:
            return None
        self.going.remove(path)
        return {"metadata": {"deletionTimestamp": "now"}}


def test_a_cluster_comes_and_goes_with_the_kinds_that_gke_brings_along(tmp_path: Path) -> None:
    programs.prepare(ignore)
    api = Requests()
    effect = ClusterEffect(Cloud(tmp_path), lambda: cast(ApiServer, api))
    effect.create({"name": "c"})
    kinds = [
        "provisioningrequests.autoscaling.x-k8s.io",
        "podmonitorings.monitoring.googleapis.com",
        "clusterrules.monitoring.googleapis.com",
    ]
    assert api.made == [("PATCH", kind) for kind in kinds]
    effect.delete({"name": "c", "deletionProtection": False})
    assert api.made[-len(kinds) :] == [("DELETE", kind) for kind in kinds]
    assert api.going == set(), "the next cluster brings the same kinds"
