from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from infra.kubernetes import Json
from sandbox.node_agent.pod import (
    NODE_SHUTDOWN,
    Pod,
    PodReason,
    pod_status,
    running,
    terminated,
    waiting,
)
from tests.sandbox.node_agent.pods import container, pod

START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
END = START + timedelta(seconds=5)


def ended(code: int) -> Json:
    return terminated(code, START, END)


def status(of: Pod, states: dict[str, Json], *, final: bool, reason: PodReason | None = None) -> dict[str, Any]:
    addresses = {"address": "127.201.1.1", "host_address": "127.201.0.1"}
    return pod_status(of, states, **addresses, started=START, final=final, reason=reason, now=END)


def conditions(found: dict[str, Any]) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in found["conditions"]}


def test_a_running_pod_is_ready_at_its_own_address() -> None:
    found = status(pod(), {"main": running(START)}, final=False)
    assert found["phase"] == "Running"
    assert (found["podIP"], found["hostIP"], found["startTime"]) == (
        "127.201.1.1",
        "127.201.0.1",
        "2026-01-01T12:00:00Z",
    )
    assert conditions(found) == {"Initialized": "True", "Ready": "True", "ContainersReady": "True"}


@pytest.mark.parametrize(("codes", "phase"), [([0, 0], "Succeeded"), ([0, 3], "Failed"), ([-9, 0], "Failed")])
def test_a_pod_succeeds_only_if_every_container_did(codes: list[int], phase: str) -> None:
    names = ["one", "two"]
    found = status(
        pod(containers=[container(name) for name in names]),
        {name: ended(code) for name, code in zip(names, codes, strict=True)},
        final=True,
    )
    assert found["phase"] == phase
    assert conditions(found)["Ready"] == "False"


def test_a_pod_that_ends_before_its_container_started_has_failed() -> None:
    assert status(pod(), {}, final=True)["phase"] == "Failed"


def test_a_signal_becomes_128_more_and_is_named() -> None:
    state = terminated(-15, START, END)["terminated"]
    assert (state["exitCode"], state["signal"], state["reason"]) == (143, 15, "Error")
    assert terminated(0, START, END)["terminated"]["reason"] == "Completed"


def test_a_container_that_cannot_be_made_keeps_the_pod_pending_and_says_why() -> None:
    state = waiting("CreateContainerConfigError", "no command")
    found = status(pod(), {"main": state}, final=False)
    assert found["phase"] == "Pending"
    assert found["containerStatuses"][0]["state"] == state


def test_init_containers_keep_the_pod_pending_until_they_are_done() -> None:
    me = pod(initContainers=[container("fetch")])
    before = status(me, {"fetch": running(START)}, final=False)
    assert (before["phase"], conditions(before)["Initialized"]) == ("Pending", "False")
    after = status(me, {"fetch": ended(0), "main": running(END)}, final=False)
    assert (after["phase"], conditions(after)["Initialized"]) == ("Running", "True")


def test_a_node_shutdown_fails_the_pod_as_a_disruption() -> None:
    found = status(pod(), {"main": ended(0)}, final=True, reason=NODE_SHUTDOWN)
    assert (found["phase"], found["reason"]) == ("Failed", "Terminated")
    assert conditions(found)["DisruptionTarget"] == "True"


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    known = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:00:00Z"}
    me = pod(status={"conditions": [known]})
    found = status(me, {"main": running(START)}, final=False)
    times = {condition["type"]: condition["lastTransitionTime"] for condition in found["conditions"]}
    assert times["Ready"] == "2026-01-01T11:00:00Z"
    assert times["ContainersReady"] == "2026-01-01T12:00:05Z"
