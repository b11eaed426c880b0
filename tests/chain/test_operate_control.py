"""Commands that act on a job, on the real chain, and `kubectl exec`.

The tests share one sandbox and build on each other's state, as the steps of one story. The stack takes over the
sandbox from whatever was in it, and leaves it empty.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from typing import Any

import pytest

from chaos.field import NAMESPACE
from sandbox.engine import Engine
from tests.chain.stack import Chain, Operations, ignore, wait_until
from tests.infra.recording import Values, stack_values

JOB = "operated"
LEADER = f"{JOB}-slice-0-0"


@pytest.fixture(scope="module")
def values() -> Values:
    """A job that trains until it is stopped, and fails at its first crash."""
    values: Any = stack_values("local")
    training = {"steps": 100_000, "save_every_steps": 5, "evaluate_every_steps": 100_000}
    values["job"] |= {"name": JOB, "existing_run": "resume", "max_restarts": 0, "training": training}
    return values


@pytest.fixture(scope="module", autouse=True)
def engine(chain: Chain, values: Values) -> Generator[Engine]:
    made = chain.engine_on(values)
    made.up(ignore)
    chain.wait_for_step(JOB, 6)
    yield made
    made.destroy(ignore, stop_jobs=True)


def command(chain: Chain, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """`multislice` on the stack in the sandbox."""
    here = ("-s", "local", "--engine", "sandbox", "--sandbox", str(chain.site.root))
    line = [sys.executable, "-m", "cli.multislice", words[0], *here, *words[1:]]
    return subprocess.run(line, input=stdin, capture_output=True, text=True, timeout=300, check=False)


def answer(chain: Chain, *words: str) -> dict[str, Any]:
    """What it answers, which goes well."""
    ended = command(chain, *words, "--json")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def leader_pod(chain: Chain) -> str:
    """Name of the running leader."""
    pods = chain.objects("pods", f"-l=jobset.sigs.k8s.io/jobset-name={JOB}")
    return next(
        name
        for pod in pods
        if (name := pod["metadata"]["name"]).startswith(LEADER) and pod["status"]["phase"] == "Running"
    )


def workload(chain: Chain) -> dict[str, Any]:
    owners: Mapping[str, dict[str, Any]] = {
        found["metadata"]["ownerReferences"][0]["name"]: found for found in chain.objects("workloads")
    }
    return owners[JOB]


def queued(chain: Chain) -> str:
    """Priority of the job's workload."""
    return workload(chain)["spec"]["priorityClassRef"]["name"]


def test_kubectl_exec_runs_a_command_beside_the_trainer(chain: Chain) -> None:
    script = "hostname; echo $MEGASCALE_SLICE_ID; cat; exit 0"
    said = chain.kubectl("exec", "-i", leader_pod(chain), "-n", NAMESPACE, "--", "sh", "-c", script, stdin="typed\n")
    assert said.splitlines() == [LEADER, "0", "typed"]


def test_kubectl_exec_ends_with_the_commands_own_exit_code(chain: Chain) -> None:
    line = [str(chain.programs.path("kubectl")), f"--kubeconfig={chain.site.kubeconfig}", "exec", "-n", NAMESPACE]
    ended = subprocess.run(
        [*line, leader_pod(chain), "--", "sh", "-c", "echo err >&2; exit 7"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (7, "")
    assert ended.stderr.startswith("err\n")


def test_a_shell_on_any_host_runs_what_it_is_given(chain: Chain) -> None:
    ended = command(chain, "shell", "--host", "slice-1-1", "--command", "hostname; cat; exit 3", stdin="typed")
    assert (ended.returncode, ended.stdout) == (3, f"{JOB}-slice-1-1\ntyped")


def test_a_host_that_is_not_there_is_told_with_those_that_are(chain: Chain) -> None:
    ended = command(chain, "shell", "--host", "slice-9-9", "--command", "true")
    assert ended.returncode == 2
    assert "(slice-0-0, slice-0-1, slice-1-0, slice-1-1), got 'slice-9-9'" in ended.stderr


def test_a_profile_of_all_hosts_is_brought_here(chain: Chain) -> None:
    folder = chain.folder / "profile"
    told = answer(chain, "profile", "--output", str(folder))
    assert told["hosts"] == 4
    assert told["steps"][1] - told["steps"][0] == 4
    assert len(list(folder.glob("plugins/profile/*/*.xplane.pb"))) == 4


def test_doctor_finds_nothing_wrong_and_asks_each_group(chain: Chain) -> None:
    checks = answer(chain, "doctor")["checks"]
    assert {check["group"] for check in checks if check["verdict"] == "ok"} == {
        *("credentials", "APIs", "quota", "versions", "clocks", "DNS", "queues", "nodes")
    }


def test_doctor_names_a_cordoned_host(chain: Chain) -> None:
    node = chain.objects("pods", f"-l=jobset.sigs.k8s.io/jobset-name={JOB}")[0]["spec"]["nodeName"]
    chain.kubectl("cordon", node)
    ended = command(chain, "doctor")
    chain.kubectl("uncordon", node)
    assert ended.returncode == 2
    assert f"kubectl uncordon {node}" in ended.stdout


def test_another_priority_reaches_the_queue_and_up_can_change_it_again(chain: Chain, values: Values) -> None:
    uid = chain.jobset(JOB)["metadata"]["uid"]
    assert answer(chain, "priority", "high")["done"] == "priority changed"
    assert queued(chain) == "high"
    lower = {**values, "job": {**values["job"], "priority": "low"}}
    chain.engine_on(lower).up(ignore)
    wait_until(lambda: queued(chain) == "low", lambda: f"the workload is queued as {queued(chain)}")
    chain.engine_on(values).up(ignore)
    assert chain.jobset(JOB)["metadata"]["uid"] == uid


def test_a_suspended_job_holds_no_chips_and_goes_on_when_it_is_resumed(chain: Chain, values: Values) -> None:
    told = answer(chain, "suspend")
    assert chain.objects("pods", f"-l=jobset.sigs.k8s.io/jobset-name={JOB}") == []
    wait_until(lambda: "admission" not in workload(chain)["status"], lambda: str(workload(chain)))
    step = max(chain.losses(JOB))
    assert told["checkpoint"]["step"] == step
    operations = Operations()
    chain.engine_on(values).up(operations)
    assert operations.changes == set()
    assert answer(chain, "suspend")["done"] == "nothing"
    assert answer(chain, "resume")["done"] == "resumed"
    chain.wait_for_step(JOB, step + 2)


def test_a_failed_job_is_retried_from_its_last_checkpoint_and_stays_pulumis(chain: Chain, values: Values) -> None:
    uid = chain.jobset(JOB)["metadata"]["uid"]
    os.kill(chain.host_pid(LEADER), signal.SIGKILL)
    assert chain.wait_for_end(JOB)["terminalState"] == "Failed"
    struck = max(chain.losses(JOB))
    told = answer(chain, "retry")
    saved = told["checkpoint"]["step"]
    assert f"it goes on from step {saved}" in told["notes"]
    assert chain.jobset(JOB)["metadata"]["uid"] != uid
    chain.wait_for_step(JOB, max(saved, struck) + 2)
    operations = Operations()
    chain.engine_on(values).up(operations)
    assert operations.changes == set()
    changed = {**values, "job": {**values["job"], "priority": "low"}}
    chain.engine_on(changed).up(ignore)
    chain.engine_on(values).up(ignore)


def test_a_job_that_runs_is_not_retried(chain: Chain) -> None:
    ended = command(chain, "retry")
    assert ended.returncode == 2
    assert "expected a job that has failed" in ended.stderr


def test_a_cancelled_job_is_gone_until_up_is_told_to_look(chain: Chain, values: Values) -> None:
    refused = command(chain, "cancel", stdin="")
    assert refused.returncode == 1
    assert "agree with --yes" in refused.stderr
    told = answer(chain, "cancel", "--yes")
    assert told["checkpoint"]["step"] == max(chain.losses(JOB))
    assert JOB not in {found["metadata"]["name"] for found in chain.objects("jobsets")}
    operations = Operations()
    engine = chain.engine_on(values)
    engine.up(operations)
    assert operations.changes == set()
    engine.refresh(ignore)
    engine.up(ignore)
    chain.wait_for_step(JOB, told["checkpoint"]["step"] + 1)


def test_what_a_stranger_asks_is_refused_and_changes_nothing(chain: Chain) -> None:
    stranger = ("--as=stranger@example.com", "-n", NAMESPACE)
    line = [str(chain.programs.path("kubectl")), f"--kubeconfig={chain.site.kubeconfig}", "exec", *stranger]
    ended = subprocess.run([*line, leader_pod(chain), "--", "true"], capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert "forbidden" in ended.stderr.lower()
    wait_until(lambda: bool(leader_pod(chain)), lambda: "the leader is gone")
