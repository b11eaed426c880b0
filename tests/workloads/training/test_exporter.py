import http.client
import socket
import time
from pathlib import Path

import pytest
from etils import epath

from tests.workloads.exposed import numbers
from workloads.spec import METRICS_ADDRESS_VARIABLE
from workloads.training.exporter import CONTENT_TYPE, look_back, serve
from workloads.training.live_metrics import LiveMetrics
from workloads.training.start import Start

START = Start("run-1", 1, 1000.0, None, 2, None)
HERE = {METRICS_ADDRESS_VARIABLE: "127.0.0.1"}


def asked(port: int, path: str) -> tuple[int, str | None, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.getheader("Content-Type"), answer.read().decode()


def test_whoever_asks_gets_the_numbers_of_now() -> None:
    live = LiveMetrics(START, leads=True)
    server = serve(live, HERE, port=0)
    assert server
    status, kind, text = asked(server.server_address[1], "/metrics")
    assert (status, kind) == (200, CONTENT_TYPE)
    assert numbers(text)["trainer_restarts"] == {"": 1}
    assert asked(server.server_address[1], "/")[0] == 404
    server.shutdown()
    server.server_close()


def test_a_host_that_is_told_no_address_serves_nothing() -> None:
    assert serve(LiveMetrics(START, leads=True), {}) is None


def test_a_port_that_is_taken_costs_no_training(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert serve(LiveMetrics(START, leads=True), HERE, port) is None
    assert f"no metrics are served at 127.0.0.1:{port}" in capsys.readouterr().out


def test_the_leader_tells_how_earlier_starts_ended(tmp_path: Path) -> None:
    folder = tmp_path / "failures" / "run-1"
    folder.mkdir(parents=True)
    record = '{"cause": "bad", "host": "host-3", "code": 23, "time": 1234.5, "elsewhere": false}'
    (folder / "host-3-0-1000.json").write_text(record)
    live = LiveMetrics(START, leads=True)
    look_back(live, epath.Path(tmp_path), START)
    deadline = time.monotonic() + 10
    while "trainer_ends" not in live.text() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert numbers(live.text())["trainer_last_end_time_seconds"] == {"BAD_HOST": 1234.5}


def test_storage_that_fails_costs_no_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "failures").mkdir()
    (tmp_path / "failures" / "run-1").write_text("no folder")
    look_back(LiveMetrics(START, leads=True), epath.Path(tmp_path), START)
    said, deadline = "", time.monotonic() + 10
    while not said and time.monotonic() < deadline:
        said = capsys.readouterr().out
        time.sleep(0.01)
    assert said.startswith("metrics lack how earlier starts ended: NotADirectoryError")
