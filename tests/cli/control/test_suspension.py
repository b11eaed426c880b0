import pytest

from cli.control.suspension import resume, suspend
from cli.deployed import Deployed
from cli.halt import Halt
from tests.cli.control.answers import answered, shown
from tests.cli.control.cluster import JOBSET, PODS, WORKLOAD, Change, Cluster, jobset, pod, workload


def test_a_job_is_suspended_by_its_workload_and_its_pods_are_waited_for(cluster: Cluster, stack: Deployed) -> None:
    cluster.objects[f"{PODS}/train-0"] = pod("train-0")

    def end_pods(_: Change) -> None:
        del cluster.objects[f"{PODS}/train-0"]

    cluster.controllers = end_pods
    told = answered(lambda console: suspend(stack, "train", console, as_json=True))
    assert [(method, path, body) for method, path, body, _ in cluster.changes] == [
        ("PATCH", WORKLOAD, {"spec": {"active": False}})
    ]
    assert (told["done"], told["state"]) == ("suspended", "suspended")


def test_hosts_that_were_done_before_are_not_waited_for(cluster: Cluster, stack: Deployed) -> None:
    cluster.objects[f"{PODS}/train-0"] = pod("train-0") | {"status": {"phase": "Succeeded"}}
    told = answered(lambda console: suspend(stack, "train", console, as_json=True))
    assert told["done"] == "suspended"


def test_a_suspended_job_comes_back_into_its_queue(cluster: Cluster, stack: Deployed) -> None:
    cluster.objects[WORKLOAD] = workload(active=False, admitted=False)
    text = shown(lambda console: resume(stack, None, console, as_json=False))
    assert cluster.objects[WORKLOAD]["spec"]["active"] is True
    assert "resumed" in text
    assert "it waits in queue team-queue until its chips are free" in text


def test_why_kueue_itself_had_suspended_a_job_is_told(cluster: Cluster, stack: Deployed) -> None:
    evicted = {
        "type": "Evicted",
        "status": "True",
        "reason": "DeactivatedDueToMaximumExecutionTimeExceeded",
        "message": "exceeding the maximum execution time",
    }
    cluster.objects[WORKLOAD] = workload(active=False, admitted=False, evicted=evicted)
    told = answered(lambda console: resume(stack, None, console, as_json=True))
    assert "Kueue had suspended it: exceeding the maximum execution time" in told["notes"]


@pytest.mark.parametrize(("command", "active", "state"), [(suspend, False, "suspended"), (resume, True, "running")])
def test_what_is_so_already_is_left_as_it_is(
    cluster: Cluster, stack: Deployed, command: type, active: bool, state: str
) -> None:
    cluster.objects[WORKLOAD] = workload(active=active)
    told = answered(lambda console: command(stack, None, console, as_json=True))
    assert (told["done"], told["state"]) == ("nothing", state)
    assert cluster.changes == []


@pytest.mark.parametrize("command", [suspend, resume])
def test_a_job_that_has_ended_is_left_as_it_is(cluster: Cluster, stack: Deployed, command: type) -> None:
    cluster.objects[JOBSET] = jobset(status={"terminalState": "Failed"})
    with pytest.raises(Halt, match="a job that waits or runs, but train is failed") as halted:
        answered(lambda console: command(stack, None, console, as_json=True))
    assert halted.value.exit_status == 2
    assert cluster.changes == []


def test_a_job_that_kueue_does_not_know_is_told_with_where_to_look(cluster: Cluster, stack: Deployed) -> None:
    del cluster.objects[WORKLOAD]
    with pytest.raises(Halt, match="kubectl describe jobset train -n research"):
        answered(lambda console: suspend(stack, None, console, as_json=True))
