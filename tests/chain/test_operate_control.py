"""Jobs that are paused, preferred, submitted again and cancelled on the real chain; profiles and the doctor.

The tests build on each other's state, as the steps of one story.
"""

import json
import os
import signal
from collections.abc import Generator, Mapping
from typing import Any

import pytest

from cli.drift import find_drift
from tests.chain.commands import answered, run
from tests.chain.shared import JOB as SHARED_JOB
from tests.chain.shared import shared
from tests.chain.stack import NAMESPACE, Chain, Operations, ignore, wait_until
from tests.infra.recording import Values

pytestmark = pytest.mark.complete

JOB = "operated"
LEADER = f"{JOB}-slice-0-0"


def _values(**changes: object) -> Values:
    """The shared stack with another job, which trains until it is stopped and fails at its first crash."""
    values = shared()
    training = {"steps": 100_000, "save_every_steps": 5, "evaluate_every_steps": 100_000}
    values["jobs"][JOB] = {
        **values["jobs"][SHARED_JOB],
        "slices": {"group": "trillium", "count": 1},
        "existing_run": "resume",
        "max_restarts": 0,
        "training": training,
        "priority": "normal",
        **changes,
    }
    return values


NORMAL, LOW, PAUSED = _values(), _values(priority="low"), _values(paused=True)


@pytest.fixture(scope="module", autouse=True)
def operated(stack: Chain) -> Generator[None]:
    """The shared stack, in which that job trains."""
    stack.engine_on(NORMAL).up(ignore)
    stack.wait_for_step(JOB, 6)
    yield
    stack.engine_on(shared() | {"allow_interruption": True}).up(ignore)
    stack.engine_on(shared()).up(ignore)


def workload(stack: Chain) -> dict[str, Any]:
    owners: Mapping[str, dict[str, Any]] = {
        found["metadata"]["ownerReferences"][0]["name"]: found for found in stack.objects("workloads")
    }
    return owners[JOB]


def queued(stack: Chain) -> str:
    """Priority of the job's workload."""
    return workload(stack)["spec"]["priorityClassRef"]["name"]


def test_a_profile_of_all_hosts_is_brought_here(stack: Chain) -> None:
    folder = stack.folder / "profile"
    told = answered(stack, "profile", JOB, "--folder", str(folder))
    assert told["hosts"] == 2
    assert told["steps"][1] - told["steps"][0] == 4
    assert len(list(folder.glob("plugins/profile/*/*.xplane.pb"))) == 2


def test_doctor_asks_each_group_and_finds_no_fault_in_a_team_on_hold(stack: Chain) -> None:
    ended = run(stack, "doctor", "-o", "json")
    assert ended.returncode == 0, ended.stdout
    checks = json.loads(ended.stdout)["checks"]
    assert {check["group"] for check in checks if check["verdict"] == "ok"} == {
        *("credentials", "APIs", "quota", "versions", "clocks", "DNS", "queues", "nodes")
    }
    held = {check["subject"] for check in checks if "stopPolicy is Hold" in check["says"]}
    assert held == {"queue lab", "local queue lab"}


def test_a_paused_job_saves_and_frees_its_chips_and_goes_on_when_it_is_not_paused_any_more(stack: Chain) -> None:
    uid, operations = stack.jobset(JOB)["metadata"]["uid"], Operations()
    stack.engine_on(PAUSED).up(operations)
    assert operations.changes == {("update", f"queue-research.{JOB}")}
    wait_until(lambda: answered(stack, "status", JOB)["jobs"][0]["state"] == "paused", lambda: str(workload(stack)))
    assert stack.pods(JOB) == []
    assert "admission" not in workload(stack)["status"]
    paused = answered(stack, "status", JOB)["jobs"][0]
    step = max(stack.losses(JOB))
    assert paused["checkpoint_step"] == step
    (found,) = [each for each in answered(stack, "explain", JOB)["findings"] if each["cause"] == "paused"]
    assert "`paused` to false" in found["next"][0]
    stack.engine_on(NORMAL).up(ignore)
    stack.wait_for_step(JOB, step + 2)
    assert min(each for each in stack.losses(JOB) if each > step) == step + 1
    assert stack.jobset(JOB)["metadata"]["uid"] == uid


def test_a_failed_job_is_submitted_again_by_the_command_that_explain_prints(stack: Chain) -> None:
    uid = stack.jobset(JOB)["metadata"]["uid"]
    os.kill(stack.trainer_pid(LEADER), signal.SIGKILL)
    assert stack.wait_for_end(JOB)["terminalState"] == "Failed"
    step = max(stack.losses(JOB))
    operations = Operations()
    stack.engine_on(NORMAL).up(operations, replace=[f"**::job-{JOB}"])
    assert {name for _, name in operations.changes} == {f"job-{JOB}"}
    assert stack.jobset(JOB)["metadata"]["uid"] != uid
    stack.wait_for_step(JOB, step + 2)
    operations = Operations()
    stack.engine_on(NORMAL).up(operations)
    assert operations.changes == set()


def test_another_priority_reaches_the_queue_and_leaves_the_job_running(stack: Chain) -> None:
    before = stack.identity(JOB)
    stack.engine_on(LOW).up(ignore)
    wait_until(lambda: queued(stack) == "low", lambda: f"the workload is queued as {queued(stack)}")
    assert stack.identity(JOB) == before


def test_drift_is_repaired_under_the_running_job(stack: Chain) -> None:
    before, last = stack.identity(JOB), max(stack.losses(JOB))
    stack.kubectl("delete", "localqueue", "research", "-n", NAMESPACE)
    found = find_drift("local", stack.engine_on(LOW))
    assert [(drift.name, drift.repair) for drift in found.objects] == [("queue-research", "create")]
    repairs = Operations()
    stack.engine_on(LOW).refresh(ignore)
    stack.engine_on(LOW).up(repairs)
    assert repairs.changes == {("create", "queue-research")}
    wait_until(lambda: max(stack.losses(JOB)) > last, lambda: f"step {last} was the last")
    assert stack.identity(JOB) == before


def test_a_cancelled_job_stays_away_until_it_is_submitted_again(stack: Chain) -> None:
    refused = run(stack, "cancel", JOB, stdin="")
    assert refused.returncode == 1
    assert "pass --yes" in refused.stderr
    told = answered(stack, "cancel", JOB, "--yes")
    step = max(stack.losses(JOB))
    assert told["checkpoint_step"] == step
    assert JOB not in {found["metadata"]["name"] for found in stack.objects("jobsets")}
    operations = Operations()
    stack.engine_on(LOW).up(operations)
    assert operations.changes == set()
    stack.engine_on(LOW).up(ignore, replace=[f"**::job-{JOB}"])
    stack.wait_for_step(JOB, step + 1)
