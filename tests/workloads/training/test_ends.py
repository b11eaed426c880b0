"""Tests how the processes of a job end if one of them fails, hangs, does not start or gets SIGTERM."""

import json
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cli.hosts import Hosts
from tests.processes import running_hosts
from tests.workloads.hosts import TIMEOUT_SECONDS, first_code, sabotage, wait_until
from tests.workloads.jobs import small_job
from tests.workloads.training.running import run
from workloads.spec import ExitCode, JobSpec

STEP_MINUTES = 2.0
"""Time limit of a step. It is far longer than the first step takes to compile on cores that other tests use too."""

pytestmark = pytest.mark.timeout(TIMEOUT_SECONDS)


def in_step_3(deed: str) -> str:
    """Return first code with which the second host alone does this before step 3."""
    return sabotage(deed, when="number == 2 and os.environ['TPU_WORKER_ID'] == '1'")


LEAVES_BEFORE_ANYTHING = "import os\nif os.environ['TPU_WORKER_ID'] == '1':\n    os._exit(0)"


@dataclass
class Ended:
    """Exit codes, logs and failure records of all hosts, in order."""

    codes: list[int]
    logs: list[str]
    records: list[dict[str, Any]]
    addresses: list[str]


def ended(job: JobSpec, folder: Path, code: str, waits_for: int = 2) -> Ended:
    """Run a job. The first `waits_for` hosts must end by themselves."""
    environment = first_code(folder / "sabotage", code)
    with running_hosts(job, 0, folder / "logs", TIMEOUT_SECONDS, environment) as hosts:
        codes = [host.process.wait(TIMEOUT_SECONDS) for host in hosts.all[:waits_for]]
        logs = [host.log.read_text() for host in hosts.all]
        records = folder / "storage" / "failures" / "run-1"
        found = [[*records.glob(f"{host.address}-0-*.json")] for host in hosts.all]
        recorded = [json.loads(paths[0].read_text()) if paths else {} for paths in found]
        return Ended(codes, logs, recorded, [host.address for host in hosts.all])


def two_hosts(folder: Path, **training: Any) -> JobSpec:
    return small_job(folder / "storage", replica=1, fsdp=4, hosts=2, **training)


@pytest.mark.costs(cpu_seconds=40)
def test_an_exception_on_one_host_ends_all_with_its_cause(tmp_path: Path) -> None:
    found = ended(two_hosts(tmp_path), tmp_path, in_step_3("raise ValueError('no such row')"))
    assert found.codes == [ExitCode.CRASH] * 2
    leader, culprit = found.records
    assert culprit["cause"] == "ValueError: no such row"
    assert any("in sabotaged" in line for line in culprit["details"])
    # Only the host where it happened has a record. The others name it in their logs.
    assert leader == {}
    assert f"stopped: host {culprit['host']} failed: ValueError: no such row" in found.logs[0]


@pytest.mark.complete
def test_a_step_that_blocks_ends_all_hosts_and_shows_where_they_are(tmp_path: Path) -> None:
    job = two_hosts(tmp_path, step_timeout_minutes=STEP_MINUTES)
    found = ended(job, tmp_path, in_step_3("threading.Event().wait()"))
    assert found.codes == [ExitCode.HANG] * 2
    leader, culprit = found.records
    cause = f"step 3 did not end within {STEP_MINUTES:g} minutes"
    assert any(cause in record["cause"] for record in found.records), [record["cause"] for record in found.records]
    assert not any("no sign of life" in record["cause"] for record in found.records)
    assert any("in sabotaged" in line for line in culprit["details"])
    assert any("in _advance" in line or "in _report" in line for line in leader["details"])
    assert not any("in sabotaged" in line for line in leader["details"])


@pytest.mark.complete
def test_a_host_that_hangs_is_named_before_jax_aborts_the_others_for_it(tmp_path: Path) -> None:
    found = ended(two_hosts(tmp_path), tmp_path, in_step_3("os.kill(os.getpid(), signal.SIGSTOP)"), waits_for=1)
    assert found.codes == [-signal.SIGABRT]
    assert found.records[0]["cause"] == f"no sign of life from {found.addresses[1]}"
    assert found.records[0]["code"] == ExitCode.PEER_LOST


@pytest.mark.complete
def test_a_host_that_does_not_come_is_named(tmp_path: Path) -> None:
    found = ended(two_hosts(tmp_path, start_minutes=0.1), tmp_path, LEAVES_BEFORE_ANYTHING)
    assert found.codes == [ExitCode.HANG, 0]
    assert found.records[0]["cause"].endswith("1 of 2 hosts began, missing: slice 0 host 1")


@pytest.mark.complete
def test_devices_that_do_not_open_are_reported_and_the_restart_counts(tmp_path: Path) -> None:
    job = small_job(tmp_path / "storage", replica=1, fsdp=1)
    # This is as in a pod on a machine without a TPU.
    with running_hosts(job, 0, tmp_path / "logs", TIMEOUT_SECONDS, {"JAX_PLATFORMS": "tpu,cpu"}) as hosts:
        assert hosts.leader.process.wait(TIMEOUT_SECONDS) == ExitCode.CRASH
        (said,) = [line for line in hosts.leader.log.read_text().splitlines() if line.startswith("stopped: ")]
    assert "its devices do not open (Unable to initialize backend 'tpu'" in said
    assert "check the image" in said


WITHIN_SECONDS = 30.0
"""Half of the grace period. It takes less than 5 s unless the machine is busy: JAX hears the signal within a second, a
host asks JAX once a second, and the leader then stays for two."""
IMPORTS_JAX = """
import sys, time
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "jax":
            print("importing", flush=True)
            time.sleep(600)
sys.meta_path.insert(0, Slow())
"""
RESTORES = """
import time
from workloads.training.restore import Restore
def read(*_):
    print("restoring", flush=True)
    time.sleep(600)
Restore.read = read
"""
GETS_IT_JUST_BEFORE_ITS_FIRST_STEP = """
import time
from workloads.training.joining import HostProcess
from workloads.training.runtime import Processes, jax_heard_sigterm
leave_early, should_stop = HostProcess.leave_early, Processes.should_stop
def waits(self):
    if not self.trains.is_set():
        self.trains.set()
        print("restored", flush=True)
        while not jax_heard_sigterm():
            time.sleep(0.1)
    return should_stop(self)
Processes.should_stop = waits
"""


@pytest.fixture
def resumed(tmp_path: Path) -> JobSpec:
    """A job of two hosts that resumes after step 4."""
    run(small_job(tmp_path / "storage", steps=4))
    return small_job(tmp_path / "storage", steps=400)


def ended_by_sigterm(hosts: Hosts, says: str) -> float:
    """Send SIGTERM to the second host when both have said this, and return the seconds until both have ended."""
    wait_until(
        lambda: all(says in host.log.read_text() or host.process.poll() is not None for host in hosts.all),
        TIMEOUT_SECONDS,
    )
    assert [says in host.log.read_text() for host in hosts.all] == [True] * len(hosts.all)
    hosts.all[1].process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    for host in hosts.all:
        host.process.wait(TIMEOUT_SECONDS)
    return time.monotonic() - began


def test_a_host_that_imports_ends_at_once(tmp_path: Path) -> None:
    job = small_job(tmp_path, replica=1, fsdp=1)
    with running_hosts(job, 0, tmp_path / "logs", TIMEOUT_SECONDS, first_code(tmp_path / "site", IMPORTS_JAX)) as hosts:
        wait_until(lambda: "importing" in hosts.leader.log.read_text())
        hosts.leader.process.send_signal(signal.SIGTERM)
        assert hosts.leader.process.wait(WITHIN_SECONDS) == ExitCode.PREEMPTED


@pytest.mark.complete
def test_a_job_that_restores_ends_at_once(tmp_path: Path, resumed: JobSpec) -> None:
    environment = first_code(tmp_path / "site", RESTORES)
    with running_hosts(resumed, 0, tmp_path / "logs", TIMEOUT_SECONDS, environment) as hosts:
        seconds = ended_by_sigterm(hosts, "restoring")
        assert [host.process.returncode for host in hosts.all] == [ExitCode.PREEMPTED] * 2
        assert seconds < WITHIN_SECONDS


@pytest.mark.complete
def test_a_job_that_is_about_to_step_agrees_to_stop_where_it_resumed(tmp_path: Path, resumed: JobSpec) -> None:
    environment = first_code(tmp_path / "site", GETS_IT_JUST_BEFORE_ITS_FIRST_STEP)
    with running_hosts(resumed, 0, tmp_path / "logs", TIMEOUT_SECONDS, environment) as hosts:
        ended_by_sigterm(hosts, "restored")
        assert [host.process.returncode for host in hosts.all] == [ExitCode.PREEMPTED] * 2
        (step,) = re.findall(r"SIGTERM: stopped after step (\d+)", hosts.leader.log.read_text())
    # JAX tells the hosts of the agreement a moment after that of the signal.
    assert 4 <= int(step) <= 6
