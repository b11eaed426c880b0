from typing import Any

import pytest

from sandbox.providers.manifests import WaitTimeoutError, poll, requirement, select, timeout_of
from sandbox.providers.plugin import Refusal


def manifest(kind: str, **annotations: str) -> dict[str, Any]:
    return {"kind": kind, "metadata": {"annotations": {f"pulumi.com/{key}": text for key, text in annotations.items()}}}


def unmet(inputs: dict[str, Any], live: dict[str, Any]) -> str:
    check = requirement(inputs)
    assert check is not None
    return check({"metadata": {"generation": 1}, **live})


def test_a_custom_resource_is_awaited_only_on_request() -> None:
    assert requirement(manifest("JobSet")) is None
    assert requirement(manifest("Deployment", skipAwait="true")) is None


def test_a_condition_must_have_the_status() -> None:
    inputs = manifest("ClusterQueue", waitFor="condition=Active")
    active = {"status": {"conditions": [{"type": "Active", "status": "True"}]}}
    inactive = {"status": {"conditions": [{"type": "Active", "status": "False", "message": "no flavor"}]}}
    assert unmet(inputs, active) == ""
    assert unmet(inputs, inactive) == "Active is False: no flavor"
    assert unmet(manifest("X", waitFor="condition=Active=False"), inactive) == ""
    assert unmet(inputs, {}) == "no condition Active yet"


def test_webhooks_are_ready_when_they_have_a_ca_bundle() -> None:
    inputs = manifest("X", waitFor="jsonpath={.webhooks[*].clientConfig.caBundle}")
    assert unmet(inputs, {"webhooks": [{"clientConfig": {}}]}) == "{.webhooks[*].clientConfig.caBundle} has no value"
    assert unmet(inputs, {"webhooks": [{"clientConfig": {"caBundle": "AA=="}}]}) == ""


def test_a_list_needs_every_entry_and_a_value_must_match() -> None:
    inputs = manifest("X", waitFor='["jsonpath={.status.phase}=Done", "condition=Ready"]')
    live = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    assert unmet(inputs, live) == "{.status.phase} is Running, not Done"


def test_an_old_status_does_not_count() -> None:
    inputs = manifest("X", waitFor="condition=Ready")
    conditions = [{"type": "Ready", "status": "True"}]
    live = {"metadata": {"generation": 2}, "status": {"observedGeneration": 1, "conditions": conditions}}
    assert "newest generation" in unmet(inputs, live)


def test_a_deployment_is_awaited_until_its_replicas_are_available() -> None:
    inputs, spec = manifest("Deployment"), {"replicas": 2}
    assert unmet(inputs, {"spec": spec}) == "its controller has not seen it"
    status = {"observedGeneration": 1, "availableReplicas": 1}
    assert unmet(inputs, {"spec": spec, "status": status}) == "1 of 2 replicas are available"
    assert unmet(inputs, {"spec": spec, "status": status | {"availableReplicas": 2}}) == ""


@pytest.mark.parametrize(
    ("path", "found"),
    [("{.a.b}", [1]), ("$.list[0].x", [2]), ("{.list[*].x}", [2, 3]), ("{.a['c.d']}", [4]), ("{.none[3]}", [])],
)
def test_paths_select_names_indices_and_all(path: str, found: list[int]) -> None:
    value = {"a": {"b": 1, "c.d": 4}, "list": [{"x": 2}, {"x": 3}]}
    assert select(path, value) == found


def test_an_unknown_expression_is_refused_with_the_forms_there_are() -> None:
    with pytest.raises(Refusal, match="expected `condition="):
        requirement(manifest("X", waitFor="ready"))


def test_waiting_ends_with_what_is_lacking() -> None:
    with pytest.raises(WaitTimeoutError, match=r"timed out after 0\.1 s: not yet"):
        poll(lambda: "not yet", 0.1)


def test_the_resource_option_wins_over_the_annotation() -> None:
    inputs = manifest("X", timeoutSeconds="30")
    assert timeout_of(inputs, 0) == 30
    assert timeout_of(inputs, 5) == 5
