# pyright: reportPrivateUsage=false

import sys
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from infra.cluster.kubernetes import ApiServer
from sandbox.node_agent.agent import Leases, NodeAgent
from sandbox.servers import holds_within
from sandbox.site import SILENT_ANNOTATION, Site
from tests.checkout import ROOT
from tests.sandbox.node_agent.pods import NODE, Json, container, pod, runs

SLEEPER = pod(containers=[container(command=["sleep", "100"])])


def node(**annotations: str) -> Json:
    return {**NODE, "metadata": {**NODE["metadata"], "uid": "uid-of-node", "annotations": annotations}}


SILENT = node(**{SILENT_ANNOTATION: "true"})


@pytest.fixture
def agent(tmp_path: Path) -> Generator[NodeAgent]:
    agent = NodeAgent(Site(tmp_path, 201), Path(sys.executable), ROOT)
    yield agent
    agent._end_all()


def deleted_by_force(agent: NodeAgent, site: Site) -> int:
    """Process of a pod on a node that fell silent, whose object was then deleted by force."""
    agent._node_changed(node())
    agent._pod_changed(SLEEPER.manifest)
    pids = site.pods / SLEEPER.folder_name / "pid"
    assert holds_within(20, lambda: pids.exists() and pids.read_text() != "", 0.02)
    agent._node_changed(SILENT)
    agent._pod_removed(SLEEPER.manifest)
    return int(pids.read_text())


def test_a_pod_deleted_by_force_on_a_silent_node_runs_on_until_the_node_speaks(agent: NodeAgent, tmp_path: Path):
    pid = deleted_by_force(agent, Site(tmp_path, 201))
    time.sleep(0.3)
    assert runs(pid)
    agent._node_changed(node())
    assert holds_within(20, lambda: not runs(pid))


def test_a_pod_deleted_by_force_on_a_silent_node_ends_with_the_node(agent: NodeAgent, tmp_path: Path):
    pid = deleted_by_force(agent, Site(tmp_path, 201))
    agent._node_removed(SILENT)
    assert holds_within(20, lambda: not runs(pid))


@dataclass
class RecordedApi:
    """Ends the round after the lease of a node."""

    last: str
    ended: threading.Event
    renewed: set[str] = field(default_factory=set[str])

    def request(self, _method: str, path: str, *_: object) -> None:
        self.renewed.add(path.rpartition("/")[2])
        if self.last in self.renewed:
            self.ended.set()

    def patch(self, *_: object) -> None:
        pass


class Busy(dict[str, Any]):
    """A node at each look at which another one comes."""

    def __init__(self, node: Json, comes: Callable[[], None]):
        super().__init__(node)
        self.comes = comes

    def __getitem__(self, key: str) -> Any:
        self.comes()
        return super().__getitem__(key)


def named(name: str, annotations: Json) -> Json:
    return {"metadata": {"name": name, "uid": f"uid-of-{name}", "annotations": annotations}}


def test_nodes_may_come_while_heartbeats_are_sent_and_of_a_silent_one_none_is() -> None:
    api = RecordedApi("one", threading.Event())
    leases = Leases(cast("ApiServer", api))
    leases.announce(named("quiet", {SILENT_ANNOTATION: "true"}))
    names = (f"new-{number}" for number in count())
    leases.announce(Busy(named("one", {}), lambda: leases.announce(named(next(names), {}))))
    runs = threading.Thread(target=leases.run, args=(api.ended,))
    runs.start()
    assert api.ended.wait(10)
    leases.stop_waiting()
    runs.join(10)
    assert "quiet" not in api.renewed
