from infra.cluster.job_pods import pod_of
from tests.cli import api_objects


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
