"""The sign of life of a container job, as kubelet asks for it."""

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from infra.jobset import render
from infra.settings.read import parse
from infra.submission import submission
from tests.infra.recording import Values
from tests.infra.test_containers import pod_of, with_container
from tests.infra.test_jobs import told

FILE = {"file": "/tmp/alive", "silence_seconds": 300}


def _container(values: Values, heartbeat: Values | None) -> Any:
    settings = parse(with_container(values, heartbeat=heartbeat))
    (container,) = pod_of(render(submission(settings, settings.jobs["serve"], None)))["containers"]
    return container


def test_a_port_is_asked_for_connections_and_a_path_for_an_answer(values: Values) -> None:
    container = _container(values, {"port": "http", "silence_seconds": 95, "start_minutes": 5})
    times = {"periodSeconds": 10, "timeoutSeconds": 10}
    assert container["livenessProbe"] == {"tcpSocket": {"port": "http"}, "failureThreshold": 10, **times}
    assert container["startupProbe"] == {"tcpSocket": {"port": "http"}, "failureThreshold": 30, **times}
    container = _container(values, {"port": "http", "path": "/healthz", "silence_seconds": 60})
    assert container["livenessProbe"]["httpGet"] == {"port": "http", "path": "/healthz"}


def test_a_file_is_alive_as_long_as_it_is_young(values: Values, tmp_path: Path) -> None:
    probe = _container(values, FILE)["livenessProbe"]
    command = [str(tmp_path / "alive") if word == "/tmp/alive" else word for word in probe["exec"]["command"]]

    def alive() -> bool:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    assert not alive()
    (tmp_path / "alive").touch()
    assert alive()
    old = time.time() - 302
    os.utime(tmp_path / "alive", (old, old))
    assert not alive()


def test_a_job_without_a_heartbeat_is_not_probed(values: Values) -> None:
    assert not {"livenessProbe", "startupProbe", "readinessProbe"} & _container(values, None).keys()


@pytest.mark.parametrize(
    ("heartbeat", "path", "words"),
    [
        ({"silence_seconds": 60}, "heartbeat", "either port or file"),
        (FILE | {"port": "http"}, "heartbeat", "either port or file"),
        (FILE | {"path": "/healthz"}, "heartbeat", "no path without port"),
        ({"port": "grpc", "silence_seconds": 60}, "heartbeat.port", "one of the job's ports, http, got 'grpc'"),
        (FILE | {"file": "/var/alive"}, "heartbeat.file", "folders that the program can write to: /tmp, /dev/shm"),
        (FILE | {"silence_seconds": 5}, "heartbeat.silence_seconds", "greater than or equal to 30"),
        ({"port": "http", "path": "healthz", "silence_seconds": 60}, "heartbeat.path", "such as /healthz"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_asked_is_told(values: Values, heartbeat: Values, path: str, words: str) -> None:
    assert words in told(with_container(values, heartbeat=heartbeat))[f"jobs.serve.{path}"]
