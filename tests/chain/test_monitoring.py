"""What is declared to watch a stack stands in a real API server, and hosts of a job answer who asks them."""

from http.client import HTTPConnection
from typing import Any

import pytest

from chaos.field import NAMESPACE
from infra.monitoring.collection import of_trainers
from infra.monitoring.component import NAMESPACE as DASHBOARD_NAMESPACE
from infra.monitoring.rules import rules
from tests.chain.stack import Chain, ignore, wait_until
from tests.workloads.exposed import Numbers, numbers
from workloads.spec import METRICS_PORT
from workloads.training.exporter import PATH

JOB = "collected"


@pytest.fixture(scope="module")
def watched(chain: Chain) -> Chain:
    """A stack whose job trains, has saved once and goes on for as long as the tests need."""
    chain.engine(name=JOB, training={"steps": 100000, "save_every_steps": 5}).up(ignore)
    chain.wait_for_step(JOB, 8)
    return chain


def test_the_api_server_has_what_was_rendered(watched: Chain) -> None:
    (trainers,) = (found for found in watched.objects("podmonitorings") if found["metadata"]["name"] == "trainer")
    assert trainers["metadata"]["namespace"] == NAMESPACE
    assert trainers["spec"] == of_trainers(NAMESPACE)["spec"]
    declared: Any = rules().values()
    wanted = {manifest["metadata"]["name"]: manifest["spec"] for manifest in declared}
    live = {found["metadata"]["name"]: found["spec"] for found in watched.objects("clusterrules")}
    assert live == wanted
    (dashboard,) = (
        found for found in watched.objects("configmaps") if found["metadata"]["name"] == "multislice-dashboard"
    )
    assert dashboard["metadata"]["namespace"] == DASHBOARD_NAMESPACE


def test_what_is_asked_for_is_a_port_of_the_pods(watched: Chain) -> None:
    pods = _pods(watched)
    assert len(pods) == 4
    for pod in pods:
        ports = [port for container in pod["spec"]["containers"] for port in container["ports"]]
        assert {"metrics": METRICS_PORT}.items() <= {port["name"]: port["containerPort"] for port in ports}.items()
        assert "jobset.sigs.k8s.io/jobset-name" in pod["metadata"]["labels"]


def test_every_host_answers_and_the_leader_for_the_job(watched: Chain) -> None:
    told = [_asked(pod) for pod in _pods(watched)]
    assert all(found["trainer_steps_total"][""] >= 1 for found in told)
    (leader,) = (found for found in told if "trainer_loss" in found)
    assert leader["trainer_slices"] == leader["trainer_asked_slices"] == {"": 2}
    assert leader["trainer_restarts"] == {"": 0}
    assert leader["trainer_seconds_total"]["productive steps"] > 0
    step = leader["trainer_step"][""]
    wait_until(
        lambda: any(found.get("trainer_step", {}).get("", 0) > step for found in map(_asked, _pods(watched))), str
    )


def test_destroy_leaves_nothing_that_was_declared(watched: Chain) -> None:
    watched.engine(name=JOB).destroy(ignore, stop_jobs=True)
    assert "monitoring.googleapis.com" not in watched.kubectl("get", "crd")


def _pods(chain: Chain) -> list[dict[str, Any]]:
    return chain.objects("pods", "-l", f"jobset.sigs.k8s.io/jobset-name={JOB}")


def _asked(pod: dict[str, Any]) -> Numbers:
    connection = HTTPConnection(pod["status"]["podIP"], METRICS_PORT, timeout=10)
    connection.request("GET", PATH)
    return numbers(connection.getresponse().read().decode())
