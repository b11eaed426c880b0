import signal
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.node_agent.pods import Json, container, pod
from tests.sandbox.node_agent.trials import Begin, script


def _probe(action: Json) -> Json:
    return {**action, "periodSeconds": 0.05, "failureThreshold": 2, "timeoutSeconds": 5}


def _runs(*command: str, **fields: Any) -> Json:
    return _probe({"exec": {"command": [*command]}}) | fields


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


def test_a_container_has_started_and_is_alive_as_long_as_its_probes_pass(begin: Begin, tmp_path: Path) -> None:
    sign, count = tmp_path / "alive", tmp_path / "asked"
    alive = ("sh", "-c", f"echo >> {count}; test -e {sign}")
    patient = _runs(*alive, failureThreshold=1000)
    trial = begin(pod(containers=[script("exec sleep 600", startupProbe=patient, livenessProbe=_runs(*alive))]))
    trial.until(lambda: count.exists() and len(count.read_text()) > 3)
    assert (trial.api.conditions["Ready"], trial.api.state()["started"]) == ("False", False)
    sign.touch()
    trial.until(lambda: trial.api.state()["started"])
    assert trial.api.conditions["Ready"] == "True"
    asked = len(count.read_text())
    trial.until(lambda: len(count.read_text()) > asked + 3)
    assert trial.api.phases[-1] == "Running"
    sign.unlink()
    trial.until_ended()
    assert trial.api.phases[-1] == "Failed"


def test_a_container_that_its_liveness_probe_ends_starts_again(begin: Begin) -> None:
    healthy = _runs("sh", "-c", "test -e $HOME/again")
    text = "test -e $HOME/tried && touch $HOME/again; touch $HOME/tried; exec sleep 600"
    trial = begin(pod(containers=[script(text, livenessProbe=healthy)], restartPolicy="OnFailure"))
    trial.until(lambda: trial.api.statuses and trial.api.state()["restartCount"] == 1)
    trial.until(lambda: trial.api.conditions["Ready"] == "True")
    assert ("Unhealthy", "Container main is ended because its livenessProbe failed.") in trial.api.events


def test_a_container_is_ready_while_its_readiness_probe_passes(begin: Begin, tmp_path: Path) -> None:
    sign = tmp_path / "ready"
    probe = _runs("test", "-e", str(sign), successThreshold=2)
    trial = begin(pod(containers=[script("exec sleep 600", readinessProbe=probe)]))
    trial.until_running()
    assert (trial.api.conditions["Ready"], trial.api.state()["started"]) == ("False", True)
    for made, expected in ((sign.touch, "True"), (sign.unlink, "False")):
        made()
        trial.until(lambda expected=expected: trial.api.conditions["Ready"] == expected)
    assert set(trial.api.phases) == {"Running"}


def test_a_request_has_the_path_and_headers_of_its_probe(begin: Begin) -> None:
    server = (
        "import http.server as h, sys;"
        "ok = lambda s: s.send_response(200 if (s.path, s.headers['X-Probe']) == ('/healthz', 'yes') else 500)"
        " or s.end_headers();"
        "h.HTTPServer((sys.argv[1], 8000), type('Ok', (h.BaseHTTPRequestHandler,), {'do_GET': ok})).serve_forever()"
    )
    request = {"port": "http", "path": "/healthz", "httpHeaders": [{"name": "X-Probe", "value": "yes"}]}
    address = {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    me = container(
        command=["python3", "-c", server, "$(ADDRESS)"],
        env=[address],
        ports=[{"name": "http", "containerPort": 8000}],
        readinessProbe=_probe({"httpGet": request}),
    )
    trial = begin(pod(containers=[me]))
    trial.until(lambda: trial.api.conditions.get("Ready") == "True")


def test_the_hook_after_the_start_comes_before_the_container_counts_as_running(begin: Begin) -> None:
    hook = {"postStart": {"exec": {"command": ["sh", "-c", "sleep 0.2; echo hook > $HOME/hook"]}}}
    trial = begin(pod(containers=[script("exec sleep 600", lifecycle=hook)]))
    trial.until_running()
    assert (trial.home / "hook").read_text() == "hook\n"


def test_a_hook_that_fails_after_the_start_ends_the_container(begin: Begin) -> None:
    hook = {"postStart": {"exec": {"command": ["false"]}}}
    trial = begin(pod(containers=[script("exec sleep 600", lifecycle=hook)]))
    trial.until_ended()
    assert trial.api.state()["state"]["terminated"]["exitCode"] == 128 + signal.SIGTERM
    assert trial.api.events == [("FailedPostStartHook", "The postStart hook of container main failed.")]


def test_the_hook_before_the_end_runs_before_sigterm_and_within_the_grace(begin: Begin) -> None:
    text = "trap 'echo term; exit 0' TERM; touch $HOME/up; while :; do sleep 0.02; done"
    hooks = (
        script(text, "quick", lifecycle={"preStop": {"exec": {"command": ["sh", "-c", "echo hook > $HOME/hook"]}}}),
        script(text, "slow", lifecycle={"preStop": {"sleep": {"seconds": 600}}}),
    )
    trial = begin(pod(containers=[*hooks]))
    trial.until_running()
    trial.until(lambda: (trial.home / "up").exists())
    with (trial.home / "hook").open("w+") as hook:
        trial.delete(1)
        assert hook.read() == "hook\n"
    ends = [each["state"]["terminated"]["exitCode"] for each in trial.api.statuses[-1]["containerStatuses"]]
    assert ends == [0, 128 + signal.SIGKILL]
