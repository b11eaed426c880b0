"""Which pods the agent runs, told by what it hears of nodes and pods; no API server answers."""

# pyright: reportPrivateUsage=false

import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from sandbox.node_agent.agent import NodeAgent
from sandbox.site import SILENT_ANNOTATION, Site
from tests.sandbox.node_agent.pods import NODE, Json, container, pod

ROOT = Path(__file__).parents[3]
SLEEPER = pod(containers=[container(command=["sleep", "100"])])


def node(**annotations: str) -> Json:
    return {**NODE, "metadata": {**NODE["metadata"], "uid": "uid-of-node", "annotations": annotations}}


SILENT = node(**{SILENT_ANNOTATION: "true"})


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def runs(pid: int) -> bool:
    """Whether the process is there, and not only its exit status."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except (FileNotFoundError, ProcessLookupError):
        return False


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
    until(lambda: pids.exists() and pids.read_text() != "")
    agent._node_changed(SILENT)
    agent._pod_removed(SLEEPER.manifest)
    return int(pids.read_text())


def test_a_pod_deleted_by_force_on_a_silent_node_runs_on_until_the_node_speaks(agent: NodeAgent, tmp_path: Path):
    pid = deleted_by_force(agent, Site(tmp_path, 201))
    time.sleep(0.3)
    assert runs(pid)
    agent._node_changed(node())
    until(lambda: not runs(pid))


def test_a_pod_deleted_by_force_on_a_silent_node_ends_with_the_node(agent: NodeAgent, tmp_path: Path):
    pid = deleted_by_force(agent, Site(tmp_path, 201))
    agent._node_removed(SILENT)
    until(lambda: not runs(pid))
