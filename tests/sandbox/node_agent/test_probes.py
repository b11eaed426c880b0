import signal
from pathlib import Path

import pytest

from tests.sandbox.node_agent.pods import Json, pod
from tests.sandbox.node_agent.trials import Begin, script


def _probe(action: Json) -> Json:
    return {**action, "periodSeconds": 0.05, "failureThreshold": 2, "timeoutSeconds": 5}


@pytest.mark.parametrize("kind", ["startupProbe", "livenessProbe"])
@pytest.mark.parametrize(
    "action",
    [{"exec": {"command": ["test", "-e", "/nowhere"]}}, {"tcpSocket": {"port": "http"}}, {"httpGet": {"port": "http"}}],
    ids=["command", "connection", "request"],
)
def test_a_container_without_a_sign_of_life_is_ended(begin: Begin, kind: str, action: Json) -> None:
    ports = [{"name": "http", "containerPort": 1}]
    sleeping = {**script("exec sleep 600", ports=ports), kind: _probe(action)}
    trial = begin(pod(containers=[sleeping]))
    trial.until_ended()
    assert trial.api.state()["state"]["terminated"]["exitCode"] == 128 + signal.SIGTERM


def test_one_that_does_not_heed_sigterm_is_killed_after_its_grace(begin: Begin) -> None:
    probe = _probe({"exec": {"command": ["false"]}})
    deaf = script("trap '' TERM; while :; do sleep 0.1; done", livenessProbe=probe)
    trial = begin(pod(containers=[deaf], terminationGracePeriodSeconds=0.2))
    trial.until_ended()
    assert trial.api.state()["state"]["terminated"]["exitCode"] == 128 + signal.SIGKILL


def test_a_container_is_alive_as_long_as_its_probes_pass(begin: Begin, tmp_path: Path) -> None:
    sign, count = tmp_path / "alive", tmp_path / "asked"
    alive = ["sh", "-c", f"echo >> {count}; test -e {sign}"]
    probe = _probe({"exec": {"command": alive}})
    patient = {**probe, "failureThreshold": 1000}
    trial = begin(pod(containers=[script("exec sleep 600", startupProbe=patient, livenessProbe=probe)]))
    trial.until(lambda: count.exists() and len(count.read_text()) > 3)
    sign.touch()
    asked = len(count.read_text())
    trial.until(lambda: len(count.read_text()) > asked + 3)
    assert trial.api.phases[-1] == "Running"
    sign.unlink()
    trial.until_ended()
    assert trial.api.phases[-1] == "Failed"
