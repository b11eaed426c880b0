"""Tests that a job which gets SIGTERM before its first step ends at once, whatever it does then."""

import re
import signal
import time
from pathlib import Path

import pytest

from cli.hosts import Hosts
from tests.processes import running_hosts
from tests.workloads.hosts import TIMEOUT_SECONDS, first_code, wait_until
from tests.workloads.jobs import small_job
from tests.workloads.training.running import run
from workloads.spec import ExitCode, JobSpec

pytestmark = pytest.mark.timeout(TIMEOUT_SECONDS)

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


@pytest.mark.costs(cpu_seconds=60)
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
