"""Queues of a live cluster, whoever made them."""

from typing import Any

import pytest

from infra.review.admission import manifests
from infra.stack import kueue
from infra.stack.settings.read import parse
from tests.infra.recording import stack_values

TPU = "google.com/tpu"


def _queue(name: str = "all", **spec: Any) -> dict[str, Any]:
    resources = [{"name": "cpu", "nominalQuota": "100"}, {"name": TPU, "nominalQuota": "16", "borrowingLimit": "8"}]
    groups = [
        {"coveredResources": ["cpu", TPU], "flavors": [{"name": "v6e", "resources": resources}]},
        {"coveredResources": ["memory"], "flavors": [{"name": "any", "resources": []}]},
    ]
    return {"metadata": {"name": name}, "spec": {"resourceGroups": groups, **spec}}


@pytest.mark.parametrize("name", ["local", "dev", "prod"])
def test_queues_of_a_stack_are_read_as_for_its_own_rehearsal(name: str) -> None:
    settings = parse(stack_values(name))
    for team, found in settings.teams.items():
        queue = kueue.cluster_queue(team, found, settings.slices, settings.scheduling.placement)
        assert manifests.chip_queue(queue) == manifests.queue(queue)


def test_both_versions_of_the_api_say_the_same() -> None:
    old = _queue(
        cohort="x", admissionChecks=["dws"], flavorFungibility={"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}
    )
    new = _queue(
        cohortName="x",
        admissionChecksStrategy={"admissionChecks": [{"name": "dws"}]},
        flavorFungibility={"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"},
    )
    found = manifests.chip_queue(old)
    assert found
    assert found == manifests.chip_queue(new)
    assert (found.cohort, found.checked_flavors, found.when_can_preempt) == ("x", {"v6e"}, "MayStopSearch")


def test_an_inactive_queue_admits_nothing_and_a_drained_one_stops_its_workloads() -> None:
    inactive = {"conditions": [{"type": "Active", "status": "False"}]}
    stops = [
        manifests.chip_queue({**_queue(**spec), "status": inactive}) for spec in ({}, {"stopPolicy": "HoldAndDrain"})
    ]
    assert [queue and queue.stop_policy for queue in stops] == ["Hold", "HoldAndDrain"]
