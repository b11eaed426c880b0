from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from infra.cluster.kubernetes import Json
from sandbox.node_agent.pod import ContainerRecord, Pod, pod_status, running
from sandbox.node_agent.pod_process import terminated
from tests.sandbox.node_agent.pods import container, pod

START = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
END = START + timedelta(seconds=5)


def ended(code: int) -> Json:
    return terminated(code, START, END)


def status(of: Pod, states: dict[str, Json | ContainerRecord], *, final: bool) -> dict[str, Any]:
    """The status with these containers; one that runs has started and is ready, unless its record says otherwise."""
    records = {container["name"]: ContainerRecord() for container in of.all_containers}
    for name, state in states.items():
        runs = "running" in state if isinstance(state, dict) else False
        records[name] = ContainerRecord(state, started=runs, ready=runs) if isinstance(state, dict) else state
    addresses = {"address": "127.201.1.1", "host_address": "127.201.0.1"}
    return pod_status(of, records, **addresses, started=START, final=final, reason=None, now=END)


def conditions(found: dict[str, Any]) -> dict[str, str]:
    return {condition["type"]: condition["status"] for condition in found["conditions"]}


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


def test_init_containers_keep_the_pod_pending_until_they_are_done() -> None:
    me = pod(initContainers=[container("fetch")])
    before = status(me, {"fetch": running(START)}, final=False)
    assert (before["phase"], conditions(before)["Initialized"]) == ("Pending", "False")
    after = status(me, {"fetch": ended(0), "main": running(END)}, final=False)
    assert (after["phase"], conditions(after)["Initialized"]) == ("Running", "True")


def test_a_condition_keeps_the_time_of_its_last_change() -> None:
    known = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:00:00Z"}
    me = pod(status={"conditions": [known]})
    found = status(me, {"main": running(START)}, final=False)
    times = {condition["type"]: condition["lastTransitionTime"] for condition in found["conditions"]}
    assert times["Ready"] == "2026-01-01T11:00:00Z"
    assert times["ContainersReady"] == "2026-01-01T12:00:05Z"


def test_a_sidecar_counts_as_soon_as_it_has_started_and_its_readiness_is_the_pods() -> None:
    me = pod(initContainers=[container("proxy", restartPolicy="Always")])
    for begun, ready, expected in ((False, False, "False"), (True, False, "True"), (True, True, "True")):
        proxy = ContainerRecord(running(START), started=begun, ready=ready)
        found = conditions(status(me, {"proxy": proxy, "main": running(END)}, final=False))
        assert (found["Initialized"], found["Ready"]) == (expected, str(ready))


@pytest.mark.parametrize(
    ("policy", "fields", "expected"),
    [("Always", {}, "OnFailure"), ("Never", {}, "Never"), ("Never", {"restartPolicy": "Always"}, "Always")],
)
def test_an_init_container_restarts_until_it_succeeds_unless_it_is_a_sidecar(
    policy: str, fields: Json, expected: str
) -> None:
    first = container("first", **fields)
    me = pod(initContainers=[first], restartPolicy=policy)
    assert (me.restart_policy(first), me.restart_policy(me.containers[0])) == (expected, policy)
