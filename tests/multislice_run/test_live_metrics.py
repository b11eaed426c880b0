import http.client
import math
import socket
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from etils import epath

from multislice_run import live_metrics as module
from multislice_run.attempt_facts import AttemptFacts, PastEnd
from multislice_run.live_metrics import FAMILIES, LiveMetrics, look_back, serve
from multislice_run.records.events import ENDS_A_PIECE, Cause, EventName
from multislice_run.records.lines import StepLine
from tests.workloads.exposed import Numbers, numbers
from tests.workloads.hosts import wait_until
from workloads.spec import METRICS_ADDRESS_VARIABLE

START = AttemptFacts("run-1", 2, 1000.0, None, 4, 86.4)


@dataclass
class Clock:
    now: float = START.began

    def __call__(self) -> float:
        return self.now


LINE = StepLine(
    step=7,
    time=1002.0,
    loss=2.5,
    gradient_norm=0.5,
    step_seconds=2.0,
    host_seconds=0.5,
    tokens_per_second=1000.0,
    device_bytes_in_use=[3, 7],
    device_peak_bytes_in_use=[8, 9],
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def live(clock: Clock) -> LiveMetrics:
    return LiveMetrics(START, leads=True, clock=clock)


def by_cause(found: Numbers) -> dict[str, float]:
    return {cause: seconds for cause, seconds in found["trainer_seconds_total"].items() if seconds}


def test_a_step_is_recorded(live: LiveMetrics, clock: Clock) -> None:
    clock.now = 1002.0
    live.record_step(LINE)
    found = numbers(live.text())
    assert found["trainer_step"] == {"": 7}
    assert found["trainer_loss"] == {"": 2.5}
    assert found["trainer_last_step_time_seconds"] == {"": 1002}
    assert found["trainer_hbm_used_bytes"] == {"": 7}
    assert found["trainer_hbm_peak_bytes"] == {"": 9}
    assert "trainer_mfu_ratio" not in found
    live.record_step(replace(LINE, step=8, loss=math.inf, mfu=0.4))
    found = numbers(live.text())
    assert math.isnan(found["trainer_loss"][""])
    assert found["trainer_mfu_ratio"] == {"": 0.4}
    assert (found["trainer_restarts"], found["trainer_usd_per_hour"]) == ({"": 2}, {"": 86.4})


def test_time_counts_for_the_causes_of_the_report(live: LiveMetrics, clock: Clock) -> None:
    pieces = {
        EventName.START: 30,
        EventName.RESTORE: 20,
        EventName.COMPILE: 10,
        EventName.SAVE: 4,
        EventName.EVALUATION: 6,
    }
    for event, seconds in pieces.items():
        clock.now += seconds
        live.record_event(event, {"step": 3, "loss": 1.0})
        assert by_cause(numbers(live.text()))[ENDS_A_PIECE[event]] == pytest.approx(seconds)
    clock.now += 2
    live.record_step(LINE)
    clock.now += 2
    live.record_step(replace(LINE, skipped=True, loss=math.nan, skipped_steps=1))
    spent = by_cause(numbers(live.text()))
    assert (spent[Cause.PRODUCTIVE], spent[Cause.INPUT], spent[Cause.LOST]) == (1.5, 1.0, 1.5)
    assert sum(spent.values()) == pytest.approx(clock.now - START.began)
    clock.now += 3
    live.record_step(replace(LINE, local_save_seconds=1.0))
    assert by_cause(numbers(live.text()))[Cause.SAVE] == spent[Cause.SAVE] + 1.0


def test_a_clock_that_is_set_back_takes_no_time_away(live: LiveMetrics, clock: Clock) -> None:
    clock.now = 500.0
    live.record_event(EventName.COMPILE, {})
    assert by_cause(numbers(live.text())) == {}


def test_work_is_safe_from_the_first_step_on_and_from_each_complete_save(live: LiveMetrics, clock: Clock) -> None:
    def safe_since() -> float:
        return numbers(live.text())["trainer_safe_time_seconds"][""]

    clock.now = 1100.0
    live.record_event(EventName.RUN_STARTED, {"step": 3})
    assert safe_since() == 1100
    clock.now = 1200.0
    live.record_event(EventName.SAVE, {"step": 5})
    assert safe_since() == 1100
    live.record_event(EventName.CHECKPOINT_SAVED, {"step": 5})
    assert safe_since() == 1200
    assert numbers(live.text())["trainer_saved_step"] == {"": 5}


def test_what_is_the_same_for_the_job_is_reported_only_by_its_leader(clock: Clock) -> None:
    hosts = {leads: LiveMetrics(START, leads=leads, clock=clock) for leads in (True, False)}
    for metrics in hosts.values():
        metrics.record_step(LINE)
        metrics.set_past_ends({"HANG": PastEnd(1, 900.0)})
    leader, other = (set(numbers(metrics.text())) for metrics in hosts.values())
    assert other == leader - {family.name for family in FAMILIES if family.leader_only}
    assert "trainer_host_seconds_total" in other


FIRST_START = AttemptFacts("run-1", 1, 1000.0, None, 2, None)
HERE = {METRICS_ADDRESS_VARIABLE: "127.0.0.1"}


def restarts(port: int) -> float:
    """Ask for the metrics, and return one of them."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    assert answer.status == 200
    assert answer.getheader("Content-Type", "").startswith("text/plain")
    return numbers(answer.read().decode())["trainer_restarts"][""]


@contextmanager
def served() -> Generator[int]:
    """Serve metrics, and yield the port."""
    server = serve(LiveMetrics(FIRST_START, leads=True), HERE, port=0)
    assert server
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def test_of_many_connections_without_a_request_the_rest_is_closed_and_all_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_REQUESTS", 3)
    monkeypatch.setattr(module, "_REQUEST_SECONDS", 0.2)
    with served() as port, ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 10)) for _ in range(20)]
        wait_until(lambda: all(connection.recv(1) == b"" for connection in silent))
        assert restarts(port) == 1


@pytest.mark.parametrize("bytes_", [b"\0" * 100_000, b"GET / HTTP/9\r\n\r\n", b"[" * 100_000 + b"\r\n\r\n"])
def test_requests_that_are_not_http_end_nothing_but_their_connection(bytes_: bytes) -> None:
    with served() as port:
        with socket.create_connection(("127.0.0.1", port), 10) as stranger, suppress(ConnectionError):
            stranger.sendall(bytes_)
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(4096):
                pass
        assert restarts(port) == 1


def test_without_an_address_or_with_a_port_that_is_taken_nothing_is_served(capsys: pytest.CaptureFixture[str]) -> None:
    assert serve(LiveMetrics(FIRST_START, leads=True), {}) is None
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert serve(LiveMetrics(FIRST_START, leads=True), HERE, port) is None
    assert f"no metrics are served at 127.0.0.1:{port}" in capsys.readouterr().out


def test_the_leader_reports_how_earlier_starts_ended(tmp_path: Path) -> None:
    folder = tmp_path / "failures" / "run-1"
    folder.mkdir(parents=True)
    record = '{"cause": "bad", "host": "host-3", "code": 23, "time": 1234.5, "elsewhere": false}'
    (folder / "host-3-0-1000.json").write_text(record)
    live = LiveMetrics(FIRST_START, leads=True)
    look_back(live, epath.Path(tmp_path), FIRST_START)
    wait_until(lambda: "trainer_ends" in live.text())
    assert numbers(live.text())["trainer_last_end_time_seconds"] == {"BAD_HOST": 1234.5}


def test_storage_that_fails_costs_no_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "failures").mkdir()
    (tmp_path / "failures" / "run-1").write_text("no folder")
    look_back(LiveMetrics(FIRST_START, leads=True), epath.Path(tmp_path), FIRST_START)
    said: list[str] = []
    wait_until(lambda: said.append(capsys.readouterr().out) or any(said))
    assert "".join(said).startswith("metrics lack the ends of earlier attempts: NotADirectoryError")
