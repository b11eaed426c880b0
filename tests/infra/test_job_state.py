from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.job_state import leader_of, pod_of
from tests.cli import api_objects

JOBS = Path(__file__).parents[1] / "golden" / "jobs"


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


def test_a_part_whose_name_only_begins_like_a_heads_is_none() -> None:
    found = api_objects.head()
    assert pod_of(found, 0.0).is_head
    found["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] = "head-node"
    assert not pod_of(found, 0.0).is_head


def test_an_init_container_that_failed_ends_the_pod_and_one_that_is_done_does_not() -> None:
    found = api_objects.pod(0, 0, "Failed")
    done, failed = ({"state": {"terminated": {"exitCode": code}}} for code in (0, 19))
    found["status"] = {"phase": "Failed", "initContainerStatuses": [done, failed]}
    assert pod_of(found, 0.0).exit_code == 19
    found["status"] = {"phase": "Running", "initContainerStatuses": [done]}
    assert (pod_of(found, 0.0).exit_code, pod_of(found, 0.0).ended) == (None, None)
