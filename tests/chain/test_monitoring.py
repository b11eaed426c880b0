"""A real API server keeps what the program declares for monitoring, and hosts of a job serve their metrics."""

from http.client import HTTPConnection
from typing import Any

from infra.monitoring import NAMESPACE as DASHBOARD_NAMESPACE
from infra.monitoring import alert_rules, trainer_monitoring
from tests.chain.shared import JOB, TEAMS
from tests.chain.stack import Chain, wait_until
from tests.workloads.exposed import Numbers, numbers
from workloads.spec import METRICS_PORT


def test_the_api_server_has_what_was_rendered(stack: Chain) -> None:
    trainers = {
        found["metadata"]["namespace"]: found["spec"]
        for found in stack.objects("podmonitorings")
        if found["metadata"]["name"] == "trainer"
    }
    assert trainers == {team: trainer_monitoring(team)["spec"] for team in TEAMS}
    declared: Any = alert_rules().values()
    wanted = {manifest["metadata"]["name"]: manifest["spec"] for manifest in declared}
    live = {found["metadata"]["name"]: found["spec"] for found in stack.objects("clusterrules")}
    assert live == wanted
    (dashboard,) = (
        found for found in stack.objects("configmaps") if found["metadata"]["name"] == "multislice-dashboard"
    )
    assert dashboard["metadata"]["namespace"] == DASHBOARD_NAMESPACE


def test_every_host_answers_and_the_leader_for_the_job(stack: Chain) -> None:
    told = [_asked(pod) for pod in stack.pods(JOB)]
    assert all(found["trainer_steps_total"][""] >= 1 for found in told)
    (leader,) = (found for found in told if "trainer_loss" in found)
    assert leader["trainer_slices"] == leader["trainer_asked_slices"] == {"": 2}
    assert leader["trainer_restarts"] == {"": 0}
    assert leader["trainer_seconds_total"]["productive steps"] > 0
    step = leader["trainer_step"][""]
    wait_until(
        lambda: any(found.get("trainer_step", {}).get("", 0) > step for found in map(_asked, stack.pods(JOB))), str
    )


def _asked(pod: dict[str, Any]) -> Numbers:
    connection = HTTPConnection(pod["status"]["podIP"], METRICS_PORT, timeout=10)
    connection.request("GET", "/metrics")
    return numbers(connection.getresponse().read().decode())
