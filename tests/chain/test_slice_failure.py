"""A job whose slices restart one by one, with the real JobSet and Kueue: three slices of one host each."""

import os
import signal
from collections.abc import Callable, Generator, Mapping
from typing import Any

import pytest

from infra.kubernetes import Json
from infra.names import NO_JOB_RUNS
from tests.chain.shared import SLEEPER
from tests.chain.stack import NAMESPACE, Chain, ignore, wait_until
from tests.infra.recording import Values, stack_values

pytestmark = pytest.mark.complete

JOB, SLICES = "apart", 3
type Hosts = Mapping[str, tuple[str, int]]
"""The uid of the pod and the process of each slice."""
PROGRAM = """
import os, time
names = ("JOB_SLICE", "JOB_SLICES", "JOB_RESTART_ATTEMPT", "JOB_SLICE_RESTART_ATTEMPT")
print(*(os.environ[name] for name in (*names, "MEGASCALE_NUM_SLICES", "MEGASCALE_COORDINATOR_ADDRESS")), flush=True)
time.sleep(900)
"""


def _stack() -> Values:
    values: Any = stack_values("local")
    del values["job"]
    values["slices"]["small"] = {"generation": "v6e", "topology": "2x2", "count": SLICES, "capacity": "spot"}
    values["teams"]["research"]["quota"]["small"] = SLICES * 4
    slices = {"slices": {"group": "small", "count": SLICES}, "slice_failure": "continue", "max_restarts": 4}
    values["jobs"] = {JOB: SLEEPER | slices | {"command": ["python", "-c"], "args": [PROGRAM]}}
    return values


@pytest.fixture(scope="module")
def running(chain: Chain) -> Generator[Chain]:
    """The stack with all slices of the job running."""
    chain.engine_on(_stack()).up(ignore)
    _wait_for_slices(chain, {})
    yield chain
    chain.engine_on(_stack()).destroy(ignore, [NO_JOB_RUNS])


def _hosts(chain: Chain) -> Hosts:
    """Those whose pod is running."""
    running = [pod for pod in chain.pods(JOB) if pod["status"].get("phase") == "Running" and not _leaves(pod)]
    found: dict[str, tuple[str, int]] = {}
    for pod in running:
        number = pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"]
        found[number] = pod["metadata"]["uid"], chain.host_pid(f"{JOB}-slice-{number}-0")
    return found


def _leaves(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _wait_for_slices(chain: Chain, before: Hosts, *restarted: str) -> Hosts:
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


def _owner(workload: Json) -> str:
    return workload["metadata"]["ownerReferences"][0]["name"]


def _admissions(chain: Chain) -> list[tuple[str, str, str]]:
    """Each condition of the job's Workload with its value and since when it has it, without whether its pods run."""
    # Jobs of other tests may have Workloads too.
    (workload,) = [each for each in chain.objects("workloads") if _owner(each) == JOB]
    conditions = [each for each in workload["status"]["conditions"] if each["type"] != "PodsReady"]
    return sorted((each["type"], each["status"], each["lastTransitionTime"]) for each in conditions)


def _printed(chain: Chain, number: str) -> str:
    """What the program of a slice printed last, once it has."""

    def printed() -> str:
        (pod,) = [pod["metadata"] for pod in chain.pods(JOB) if f"-slice-{number}-0-" in pod["metadata"]["name"]]
        return chain.kubectl("logs", pod["name"], "-n", pod["namespace"]).strip()

    wait_until(lambda: bool(printed()), lambda: f"slice {number} prints nothing")
    return printed()


def test_each_slice_knows_its_place_and_is_joined_with_no_other(running: Chain) -> None:
    assert [_printed(running, number) for number in "012"] == [
        f"{number} 3 0 0 1 {JOB}-slice-{number}-0.{JOB}" for number in "012"
    ]


def _pod(before: Hosts, chain: Chain, number: str) -> str:
    uid = before[number][0]
    (name,) = [pod["metadata"]["name"] for pod in chain.pods(JOB) if pod["metadata"]["uid"] == uid]
    return name


def _kill(_: Chain, before: Hosts, number: str) -> None:
    os.kill(before[number][1], signal.SIGKILL)


def _delete(chain: Chain, before: Hosts, number: str) -> None:
    chain.kubectl("delete", "pod", _pod(before, chain, number), "-n", NAMESPACE, "--wait=false")


def _evict(chain: Chain, before: Hosts, number: str) -> None:
    metadata = {"name": _pod(before, chain, number), "namespace": NAMESPACE}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    chain.api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods/{metadata['name']}/eviction", eviction)


@pytest.mark.parametrize(
    ("end", "number", "restarts", "counted"),
    [
        (_kill, "1", [0, 1, 0], [0, 1, 0]),
        (_delete, "2", [0, 1, 1], [0, 1, 1]),
        # Only an eviction is a disruption in the sense of Kubernetes.
        (_evict, "0", [1, 1, 1], [0, 1, 1]),
    ],
    ids=["killed", "deleted", "evicted"],
)
def test_a_slice_that_ends_restarts_alone(
    running: Chain, end: Callable[[Chain, Hosts, str], None], number: str, restarts: list[int], counted: list[int]
) -> None:
    before, admitted = _hosts(running), _admissions(running)
    end(running, before, number)
    after = _wait_for_slices(running, before, number)
    assert [other for other in after if after[other] != before[other]] == [number]
    assert _restarts(running) == (0, restarts, counted)
    assert _admissions(running) == admitted
    assert _printed(running, number).startswith(f"{number} 3 0 1 1 ")


def test_slices_that_end_together_restart_each_on_its_own(running: Chain) -> None:
    before, admitted = _hosts(running), _admissions(running)
    for number in "01":
        _kill(running, before, number)
    after = _wait_for_slices(running, before, "0", "1")
    assert after["2"] == before["2"]
    assert _restarts(running) == (0, [2, 2, 1], [1, 2, 1])
    assert _admissions(running) == admitted


def test_the_slices_share_the_restarts_of_the_job(running: Chain) -> None:
    _kill(running, _hosts(running), "2")
    assert running.wait_for_end(JOB)["terminalState"] == "Failed"
    assert _restarts(running) == (0, [2, 2, 1], [1, 2, 1])
