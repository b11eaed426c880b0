"""How the processes of a job end when one of them fails, hangs or does not come."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.processes import running_hosts
from tests.workloads.jobs import small_job
from workloads.spec import ExitCode, JobSpec

TIMEOUT_SECONDS = 240

pytestmark = pytest.mark.timeout(TIMEOUT_SECONDS)

SABOTAGE = """
import os, threading
if os.environ.get("TPU_WORKER_ID") == "1":
{body}
"""
"""Runs in every process before its own code, as Python's `sitecustomize`; strikes the second host alone."""

SABOTAGED_STEP = """
    from workloads.training.data import Batches
    training = Batches.training
    def sabotaged(self, step):
        if step == 2:
            {deed}
        return training(self, step)
    Batches.training = sabotaged
"""

LEAVES_BEFORE_ANYTHING = """
    os._exit(0)
"""


@dataclass
class Ended:
    """Exit codes, logs and failure records, first host first."""

    codes: list[int]
    logs: list[str]
    records: list[dict[str, Any]]


def ended(job: JobSpec, folder: Path, body: str) -> Ended:
    (folder / "sabotage").mkdir()
    (folder / "sabotage" / "sitecustomize.py").write_text(SABOTAGE.format(body=body))
    checkout = Path(__file__).parents[3]
    environment = {"PYTHONPATH": f"{folder / 'sabotage'}:{checkout}"}
    with running_hosts(job, 0, folder / "logs", TIMEOUT_SECONDS, environment) as hosts:
        codes = [host.process.wait(TIMEOUT_SECONDS) for host in hosts.all]
        logs = [host.log.read_text() for host in hosts.all]
        names = [folder / "storage" / "failures" / "run-1" / f"{host.address}-0.json" for host in hosts.all]
        return Ended(codes, logs, [json.loads(name.read_text()) if name.exists() else {} for name in names])


def two_hosts(folder: Path, **training: Any) -> JobSpec:
    return small_job(folder / "storage", replica=1, fsdp=4, hosts=2, **training)


def test_an_exception_on_one_host_ends_all_with_its_cause(tmp_path: Path) -> None:
    found = ended(two_hosts(tmp_path), tmp_path, SABOTAGED_STEP.format(deed="raise ValueError('no such row')"))
    assert found.codes == [ExitCode.CRASH] * 2
    leader, culprit = found.records
    assert culprit["cause"] == "ValueError: no such row"
    assert any("in sabotaged" in line for line in culprit["details"])
    # The record is that of the host where it happened; the others name it in their logs.
    assert leader == {}
    assert f"stopped: host {culprit['host']} failed: ValueError: no such row" in found.logs[0]


def test_a_step_that_blocks_ends_all_hosts_and_shows_where_they_are(tmp_path: Path) -> None:
    job = two_hosts(tmp_path, step_timeout_minutes=0.1)
    found = ended(job, tmp_path, SABOTAGED_STEP.format(deed="threading.Event().wait()"))
    assert found.codes == [ExitCode.HANG] * 2
    leader, culprit = found.records
    assert any("step 3 did not end within 0.1 minutes" in record["cause"] for record in found.records)
    assert any("in sabotaged" in line for line in culprit["details"])
    assert any("in _advance" in line or "in _report" in line for line in leader["details"])
    assert not any("in sabotaged" in line for line in leader["details"])


def test_a_host_that_does_not_come_is_named(tmp_path: Path) -> None:
    found = ended(two_hosts(tmp_path, start_minutes=0.1), tmp_path, LEAVES_BEFORE_ANYTHING)
    assert found.codes == [ExitCode.HANG, 0]
    assert found.records[0]["cause"].endswith("1 of 2 hosts began, missing: slice 0 host 1")
