from typing import Any

import pytest

from cli.control.declared import Declarer, declared, declarer, submission
from infra.kubernetes import Json
from tests.cli.control.cluster import APPLIED, CREATED, created, jobset, workload


def pod_of(manifest: dict[str, Any]) -> dict[str, Any]:
    (replicated,) = manifest["spec"]["replicatedJobs"]
    return replicated["template"]["spec"]["template"]["spec"]


def by(live: Json) -> Declarer:
    found = declarer(live)
    assert found
    return found


def test_who_applied_the_job_or_else_created_it_is_its_declarer_and_no_controller_is() -> None:
    assert (by(jobset()).manager, by(jobset()).applies) == (APPLIED, True)
    assert (by(created()).manager, by(created()).applies) == (CREATED, False)
    both = jobset()
    both["metadata"]["managedFields"].insert(0, created()["metadata"]["managedFields"][-1])
    assert by(both).manager == APPLIED
    metadata = jobset()["metadata"]
    assert declarer(jobset(metadata=metadata | {"managedFields": metadata["managedFields"][:1]})) is None


def test_what_was_declared_is_what_the_declarer_still_owns() -> None:
    found = declared(jobset(), by(jobset()))
    assert found["metadata"].keys() == {"name", "namespace", "labels"}
    assert found["spec"] == {
        "replicatedJobs": [
            {
                "name": "slice",
                "replicas": 2,
                "template": {
                    "spec": {
                        "template": {
                            "spec": {
                                "terminationGracePeriodSeconds": 1,
                                "nodeSelector": {"topology": "2x4"},
                                "containers": [{"name": "trainer", "image": "image:1"}],
                            }
                        }
                    }
                },
            }
        ]
    }


@pytest.mark.parametrize("live", [jobset(), created()])
def test_submitted_again_a_job_may_go_wherever_it_could_the_first_time(live: Json) -> None:
    again = submission(live, by(live), workload())
    assert pod_of(again)["nodeSelector"] == {"topology": "2x4"}
    assert pod_of(again)["tolerations"] == [{"key": "google.com/tpu"}]
    assert pod_of(again)["containers"] == [{"name": "trainer", "image": "image:1"}]


def test_reading_what_was_declared_changes_nothing_of_the_live_object() -> None:
    live = jobset()
    submission(live, by(live), workload())
    assert live == jobset()


def test_lists_stay_in_their_order_whatever_the_order_of_the_fields() -> None:
    live = jobset()
    pod_of(live)["volumes"] = [{"name": name, "emptyDir": {}} for name in ("shared", "temporary", "access")]
    (applied,) = [each for each in live["metadata"]["managedFields"] if each["manager"] == APPLIED]
    fields = applied["fieldsV1"]["f:spec"]["f:replicatedJobs"]['k:{"name":"slice"}']["f:template"]["f:spec"]
    pod = fields["f:template"]["f:spec"]
    pod["f:volumes"] = {
        f'k:{{"name":"{name}"}}': {"f:emptyDir": {}} for name in ("access", "gone", "shared", "temporary")
    }
    assert [each["name"] for each in pod_of(declared(live, by(live)))["volumes"]] == ["shared", "temporary", "access"]
