"""Commands that act on a job, on the real chain, and `kubectl exec`.

The tests build on each other's state, as the steps of one story.
"""

import json
import os
import signal
import subprocess
from collections.abc import Generator, Mapping
from typing import Any

import pytest
from pulumi.automation import CommandError

from chaos.target import NAMESPACE
from cli.drift import drifted
from tests.chain.commands import answered, run
from tests.chain.shared import JOB as SHARED_JOB
from tests.chain.shared import shared
from tests.chain.stack import Chain, Operations, ignore, wait_until
from tests.infra.recording import Values

pytestmark = pytest.mark.complete

JOB = "operated"
LEADER = f"{JOB}-slice-0-0"


def _values(priority: str) -> Values:
    """The shared stack with another job, which trains until it is stopped and fails at its first crash."""
    values = shared()
    training = {"steps": 100_000, "save_every_steps": 5, "evaluate_every_steps": 100_000}
    values["jobs"][JOB] = {
        **values["jobs"][SHARED_JOB],
        "slices": {"group": "trillium", "count": 1},
        "existing_run": "resume",
        "max_restarts": 0,
        "training": training,
        "priority": priority,
    }
    return values


NORMAL, LOW = _values("normal"), _values("low")


@pytest.fixture(scope="module", autouse=True)
def operated(stack: Chain) -> Generator[None]:
    """The shared stack, in which that job trains."""
    stack.engine_on(NORMAL).up(ignore)
    stack.wait_for_step(JOB, 6)
    yield
    stack.engine_on(shared() | {"allow_interruption": True}).up(ignore)
    stack.engine_on(shared()).up(ignore)


def leader_pod(stack: Chain) -> str:
    """Name of the running leader."""
    pods = stack.pods(JOB)
    return next(
        name
        for pod in pods
        if (name := pod["metadata"]["name"]).startswith(LEADER) and pod["status"]["phase"] == "Running"
    )


def workload(stack: Chain) -> dict[str, Any]:
    owners: Mapping[str, dict[str, Any]] = {
        found["metadata"]["ownerReferences"][0]["name"]: found for found in stack.objects("workloads")
    }
    return owners[JOB]


def queued(stack: Chain) -> str:
    """Priority of the job's workload."""
    return workload(stack)["spec"]["priorityClassRef"]["name"]


def test_kubectl_exec_runs_a_command_beside_the_trainer(stack: Chain) -> None:
    script = "hostname; echo $MEGASCALE_SLICE_ID; cat; exit 0"
    said = stack.kubectl("exec", "-i", leader_pod(stack), "-n", NAMESPACE, "--", "sh", "-c", script, stdin="typed\n")
    assert said.splitlines() == [LEADER, "0", "typed"]


def test_kubectl_exec_ends_with_the_commands_own_exit_code(stack: Chain) -> None:
    line = [str(stack.programs.path("kubectl")), f"--kubeconfig={stack.site.kubeconfig}", "exec", "-n", NAMESPACE]
    ended = subprocess.run(
        [*line, leader_pod(stack), "--", "sh", "-c", "echo err >&2; exit 7"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (7, "")
    assert ended.stderr.startswith("err\n")


def test_a_shell_on_any_host_runs_what_it_is_given(stack: Chain) -> None:
    ended = run(stack, "shell", JOB, "--host", "slice-0-1", "--command", "hostname; cat; exit 3", stdin="typed")
    assert (ended.returncode, ended.stdout) == (3, f"{JOB}-slice-0-1\ntyped")


def test_a_host_that_is_not_there_is_told_with_those_that_are(stack: Chain) -> None:
    ended = run(stack, "shell", JOB, "--host", "slice-9-9", "--command", "true")
    assert ended.returncode == 2
    assert "(slice-0-0, slice-0-1), got 'slice-9-9'" in ended.stderr


def test_a_profile_of_all_hosts_is_brought_here(stack: Chain) -> None:
    folder = stack.folder / "profile"
    told = answered(stack, "profile", JOB, "--output", str(folder))
    assert told["hosts"] == 2
    assert told["steps"][1] - told["steps"][0] == 4
    assert len(list(folder.glob("plugins/profile/*/*.xplane.pb"))) == 2


def test_doctor_asks_each_group_and_finds_no_fault_in_a_team_on_hold(stack: Chain) -> None:
    ended = run(stack, "doctor", "--json")
    assert ended.returncode == 0, ended.stdout
    checks = json.loads(ended.stdout)["checks"]
    assert {check["group"] for check in checks if check["verdict"] == "ok"} == {
        *("credentials", "APIs", "quota", "versions", "clocks", "DNS", "queues", "nodes")
    }
    held = {check["subject"] for check in checks if "stopPolicy is Hold" in check["says"]}
    assert held == {"queue lab", "local queue lab"}


def test_doctor_names_a_cordoned_host(stack: Chain) -> None:
    node = stack.pods(JOB)[0]["spec"]["nodeName"]
    stack.kubectl("cordon", node)
    ended = run(stack, "doctor")
    stack.kubectl("uncordon", node)
    assert ended.returncode == 2
    assert f"kubectl uncordon {node}" in ended.stdout


def test_a_suspended_job_holds_no_chips_and_goes_on_when_it_is_resumed(stack: Chain) -> None:
    told = answered(stack, "suspend", JOB)
    assert stack.pods(JOB) == []
    wait_until(lambda: "admission" not in workload(stack)["status"], lambda: str(workload(stack)))
    step = max(stack.losses(JOB))
    assert told["checkpoint"]["step"] == step
    operations = Operations()
    stack.engine_on(NORMAL).up(operations)
    assert operations.changes == set()
    assert answered(stack, "suspend", JOB)["done"] == "nothing"
    assert answered(stack, "resume", JOB)["done"] == "resumed"
    stack.wait_for_step(JOB, step + 2)


def test_a_failed_job_is_retried_from_its_last_checkpoint_and_stays_pulumis(stack: Chain) -> None:
    uid = stack.jobset(JOB)["metadata"]["uid"]
    os.kill(stack.host_pid(LEADER), signal.SIGKILL)
    assert stack.wait_for_end(JOB)["terminalState"] == "Failed"
    struck = max(stack.losses(JOB))
    told = answered(stack, "retry", JOB)
    saved = told["checkpoint"]["step"]
    assert f"it goes on from step {saved}" in told["notes"]
    assert stack.jobset(JOB)["metadata"]["uid"] != uid
    stack.wait_for_step(JOB, max(saved, struck) + 2)
    operations = Operations()
    stack.engine_on(NORMAL).up(operations)
    assert operations.changes == set()


def test_a_job_that_runs_is_not_retried(stack: Chain) -> None:
    ended = run(stack, "retry", JOB)
    assert ended.returncode == 2
    assert "expected a job that has failed" in ended.stderr


def test_another_priority_reaches_the_queue_and_up_can_change_it_again(stack: Chain) -> None:
    uid, engine = stack.jobset(JOB)["metadata"]["uid"], stack.engine_on(LOW)
    # Up to the first `up` that changes the JobSet it has the fields with which it was created, then applied ones.
    for before in (lambda: None, lambda: engine.refresh(ignore)):
        assert answered(stack, "priority", "high", JOB)["done"] == "priority changed"
        assert queued(stack) == "high"
        before()
        engine.up(ignore)
        wait_until(lambda: queued(stack) == "low", lambda: f"the workload is queued as {queued(stack)}")
    assert stack.jobset(JOB)["metadata"]["uid"] == uid


def test_drift_is_repaired_under_the_running_job(stack: Chain) -> None:
    before, last = stack.identity(JOB), max(stack.losses(JOB))
    stack.kubectl("delete", "localqueue", "research", "-n", NAMESPACE)
    found = drifted("local", stack.engine_on(LOW))
    assert [(drift.name, drift.repair) for drift in found.objects] == [("queue-research", "create")]
    repairs = Operations()
    stack.engine_on(LOW).refresh(ignore)
    stack.engine_on(LOW).up(repairs)
    assert repairs.changes == {("create", "queue-research")}
    wait_until(lambda: max(stack.losses(JOB)) > last, lambda: f"step {last} was the last")
    assert stack.identity(JOB) == before


def test_a_cancelled_job_is_gone_until_up_is_told_to_look(stack: Chain) -> None:
    refused = run(stack, "cancel", JOB, stdin="")
    assert refused.returncode == 1
    assert "agree with --yes" in refused.stderr
    told = answered(stack, "cancel", JOB, "--yes")
    assert told["checkpoint"]["step"] == max(stack.losses(JOB))
    assert JOB not in {found["metadata"]["name"] for found in stack.objects("jobsets")}
    operations = Operations()
    stack.engine_on(LOW).up(operations)
    assert operations.changes == set()
    with pytest.raises(CommandError, match="unable to get cluster state"):
        stack.engine_on(NORMAL).up(ignore)
    engine = stack.engine_on(LOW)
    engine.refresh(ignore)
    engine.up(ignore)
    stack.wait_for_step(JOB, told["checkpoint"]["step"] + 1)


def test_what_a_stranger_asks_is_refused_and_changes_nothing(stack: Chain) -> None:
    stranger = ("--as=stranger@example.com", "-n", NAMESPACE)
    line = [str(stack.programs.path("kubectl")), f"--kubeconfig={stack.site.kubeconfig}", "exec", *stranger]
    ended = subprocess.run([*line, leader_pod(stack), "--", "true"], capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert "forbidden" in ended.stderr.lower()
    wait_until(lambda: bool(leader_pod(stack)), lambda: "the leader is gone")
