"""A job whose slices restart one by one, with the real JobSet and Kueue: three slices of one host each."""

import os
import signal
from collections.abc import Mapping
from typing import Any

import pytest

from chaos.target import NAMESPACE
from infra.kubernetes import Json
from tests.chain.shared import SLEEPER
from tests.chain.stack import Chain, ignore, wait_until
from tests.infra.recording import Values, stack_values

pytestmark = pytest.mark.complete

JOB, SLICES = "apart", 3
PROGRAM = """
import os, time
names = ("JOB_SLICE", "JOB_SLICES", "JOB_RESTART_ATTEMPT", "JOB_SLICE_RESTART_ATTEMPT")
print(*(os.environ[name] for name in (*names, "MEGASCALE_NUM_SLICES", "MEGASCALE_COORDINATOR_ADDRESS")), flush=True)
time.sleep(900)
"""


def _stack() -> Values:
    values: Any = stack_values("local")
    del values["job"]
    values["slices"] = {"small": {"generation": "v6e", "topology": "2x2", "count": SLICES, "capacity": "spot"}}
    values["teams"] = {"research": {"namespace": NAMESPACE, "quota": {"small": SLICES * 4}}}
    slices = {"slices": {"group": "small", "count": SLICES}, "slice_failure": "continue", "max_restarts": 3}
    values["jobs"] = {JOB: SLEEPER | slices | {"command": ["python", "-c"], "args": [PROGRAM]}}
    return values


@pytest.fixture(scope="module")
def running(chain: Chain) -> Chain:
    """The stack with all slices of the job running."""
    chain.engine_on(_stack()).up(ignore)
    _wait_for_slices(chain, {})
    return chain


def _hosts(chain: Chain) -> dict[str, tuple[str, int]]:
    """The uid of the pod and the process of each slice whose pod is running."""
    running = [pod for pod in chain.pods(JOB) if pod["status"].get("phase") == "Running" and not _leaves(pod)]
    found: dict[str, tuple[str, int]] = {}
    for pod in running:
        number = pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"]
        found[number] = pod["metadata"]["uid"], chain.host_pid(pod["metadata"]["name"])
    return found


def _leaves(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _wait_for_slices(
    chain: Chain, before: Mapping[str, tuple[str, int]], *restarted: str
) -> dict[str, tuple[str, int]]:
    """The hosts once all slices run, those of `restarted` in other pods than `before`."""

    def all_run() -> bool:
        try:
            hosts = _hosts(chain)
        except ProcessLookupError:
            return False
        return len(hosts) == SLICES and all(hosts[number][0] != before[number][0] for number in restarted)

    wait_until(all_run, lambda: chain.kubectl("get", "jobset,workload,pods", "-A", "-o", "wide"))
    return _hosts(chain)


def _restarts(chain: Chain) -> tuple[int, list[int], list[int]]:
    """How often the whole JobSet restarted, and how often each slice, in all and counted."""
    status = chain.jobset(JOB)["status"]
    (slices,) = status["replicatedJobsStatus"]
    none = [0] * SLICES
    return status.get("restarts", 0), slices.get("jobRestarts", none), slices.get("jobRestartsCountTowardsMax", none)


def _admissions(chain: Chain) -> list[tuple[str, str, str]]:
    """Each condition of the job's Workload with its value and since when it has it, without whether its pods run."""
    (workload,) = chain.objects("workloads")
    conditions = [each for each in workload["status"]["conditions"] if each["type"] != "PodsReady"]
    return sorted((each["type"], each["status"], each["lastTransitionTime"]) for each in conditions)


def _printed(chain: Chain, number: str) -> str:
    """What the program of a slice printed last."""
    (pod,) = [pod["metadata"] for pod in chain.pods(JOB) if f"-slice-{number}-0-" in pod["metadata"]["name"]]
    return chain.kubectl("logs", pod["name"], "-n", pod["namespace"]).strip()


def test_each_slice_knows_its_place_and_is_joined_with_no_other(running: Chain) -> None:
    assert [_printed(running, number) for number in "012"] == [
        f"{number} 3 0 0 1 {JOB}-slice-{number}-0.{JOB}" for number in "012"
    ]


def test_a_killed_process_restarts_its_slice_alone_and_counts(running: Chain) -> None:
    before, admitted = _hosts(running), _admissions(running)
    os.kill(before["1"][1], signal.SIGKILL)
    after = _wait_for_slices(running, before, "1")
    assert {number: after[number] for number in "02"} == {number: before[number] for number in "02"}
    assert _restarts(running) == (0, [0, 1, 0], [0, 1, 0])
    assert _admissions(running) == admitted
    assert _printed(running, "1").startswith("1 3 0 1 1 ")


def test_a_deleted_pod_restarts_its_slice_alone_and_does_not_count(running: Chain) -> None:
    before, admitted = _hosts(running), _admissions(running)
    (pod,) = [pod["metadata"]["name"] for pod in running.pods(JOB) if pod["metadata"]["uid"] == before["2"][0]]
    running.kubectl("delete", "pod", pod, "-n", NAMESPACE, "--wait=false")
    after = _wait_for_slices(running, before, "2")
    assert {number: after[number] for number in "01"} == {number: before[number] for number in "01"}
    assert _restarts(running) == (0, [0, 1, 1], [0, 1, 0])
    assert _admissions(running) == admitted


def test_slices_that_fail_together_restart_each_on_its_own(running: Chain) -> None:
    before, admitted = _hosts(running), _admissions(running)
    for number in "01":
        os.kill(before[number][1], signal.SIGKILL)
    after = _wait_for_slices(running, before, "0", "1")
    assert after["2"] == before["2"]
    assert _restarts(running) == (0, [1, 2, 1], [1, 2, 0])
    assert _admissions(running) == admitted


def test_the_slices_share_the_restarts_of_the_job(running: Chain) -> None:
    os.kill(_hosts(running)["2"][1], signal.SIGKILL)
    assert running.wait_for_end(JOB)["terminalState"] == "Failed"
    assert _restarts(running) == (0, [1, 2, 1], [1, 2, 0])
