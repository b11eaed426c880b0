from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.cluster.job_state import leader_of, workload_of
from infra.stack.names import TPU_RESOURCE

JOBS = Path(__file__).parents[2] / "golden" / "jobs"


def by_hand(*names: str, **spec: Any) -> dict[str, Any]:
    return {"spec": {"replicatedJobs": [{"name": name} for name in names], **spec}}


@pytest.mark.parametrize(
    ("name", "leader"),
    [("container", "slice-0-0"), ("pathways", "head-0-0"), ("pathways-colocated", "head-0-0")],
)
def test_a_job_of_a_stack_says_who_leads_it(name: str, leader: str) -> None:
    assert leader_of(yaml.safe_load((JOBS / f"{name}.yaml").read_text())) == leader


@pytest.mark.parametrize(
    ("jobset", "leader"),
    [
        pytest.param(by_hand("reader", "slice", coordinator={"replicatedJob": "slice"}), "slice-0-0", id="coordinator"),
        pytest.param(
            by_hand("slice", coordinator={"replicatedJob": "slice", "jobIndex": 1, "podIndex": 2}),
            "slice-1-2",
            id="coordinator on another host",
        ),
        pytest.param(by_hand("slice", "head"), "head-0-0", id="head"),
        pytest.param(by_hand("workers", "reader"), "workers-0-0", id="neither"),
    ],
)
def test_a_job_by_hand_is_led_by_its_coordinator_or_its_head_or_what_it_lists_first(
    jobset: dict[str, Any], leader: str
) -> None:
    assert leader_of(jobset) == leader


def test_a_workload_holds_the_chips_of_the_pods_that_were_admitted() -> None:
    """Kueue may admit fewer pods than it was asked for. Pods without chips have a flavor of another resource."""
    template = {"spec": {"containers": [{"resources": {"limits": {TPU_RESOURCE: "4"}}}]}}
    asked = [{"name": name, "count": 4, "template": template} for name in ("first", "second", "third")]
    assigned = [
        {"name": "first", "count": 2, "flavors": {TPU_RESOURCE: "a"}, "resourceUsage": {TPU_RESOURCE: "8"}},
        {"name": "second", "count": 3, "flavors": {TPU_RESOURCE: "b"}},
        {"name": "third", "flavors": {TPU_RESOURCE: "a"}},
        {"name": "head", "count": 1, "flavors": {"cpu": "c"}},
    ]
    status = {"admission": {"clusterQueue": "queue", "podSetAssignments": assigned}}
    found = workload_of({"metadata": {"name": "w"}, "spec": {"podSets": asked}, "status": status})
    assert (found.held_chips, found.flavors) == ({"a": 24, "b": 12}, ("a", "b"))
