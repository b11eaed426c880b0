"""The checkpoint bucket: what may delete from it, who may see it, where it lies."""

import pytest
from pulumi import RunError

from tests.infra.recording import Recording, Values, run_program, stack_values

BUCKET = ("gcp:storage/bucket:Bucket", "checkpoints")
CLUSTER = ("gcp:container/cluster:Cluster", "cluster")


def test_no_rule_deletes_checkpoints_and_a_deleted_one_can_be_brought_back(program: Recording) -> None:
    bucket = program.named(*BUCKET).inputs
    assert {rule["action"]["type"] for rule in bucket["lifecycleRules"]} == {"AbortIncompleteMultipartUpload"}
    assert bucket["softDeletePolicy"]["retentionDurationSeconds"] >= 7 * 24 * 60 * 60
    assert bucket["forceDestroy"] is False


def test_a_destroy_leaves_the_bucket_except_in_an_environment(program: Recording, values: Values) -> None:
    assert program.named(*BUCKET).request.retainOnDelete is True
    values["teams"]["research"]["namespace"] = f"{values['cluster']['name']}-research"
    ends = {"source": "dev", "expires_at": "2999-01-01T00:00:00Z"}
    environment = run_program({**values, "environment": ends}).named(*BUCKET)
    assert (environment.request.retainOnDelete, environment.inputs["forceDestroy"]) == (False, True)


def test_a_bucket_that_exists_is_adopted(two_teams: Values) -> None:
    name = run_program(two_teams).named(*BUCKET).inputs["name"]
    assert run_program(two_teams).named(*BUCKET).request.importId == ""
    place = two_teams["cloud"]["region"].upper()
    assert run_program(two_teams, buckets={name: place}).named(*BUCKET).request.importId == name


def test_a_bucket_that_exists_in_another_region_is_refused_by_name(two_teams: Values) -> None:
    name = run_program(two_teams).named(*BUCKET).inputs["name"]
    with pytest.raises(RunError, match=f"{name} lies in ASIA-EAST1, and cloud.region is"):
        run_program(two_teams, buckets={name: "ASIA-EAST1"})


def test_an_environment_adopts_no_bucket_since_it_would_delete_what_is_in_it(values: Values) -> None:
    values["teams"]["research"]["namespace"] = f"{values['cluster']['name']}-research"
    environment = {**values, "environment": {"source": "dev", "expires_at": "2999-01-01T00:00:00Z"}}
    name = run_program(environment).named(*BUCKET).inputs["name"]
    place = values["cloud"]["region"].upper()
    assert run_program(environment, buckets={name: place}).named(*BUCKET).request.importId == ""


def test_the_bucket_is_closed_to_the_public_and_near_the_slices(program: Recording) -> None:
    bucket = program.named(*BUCKET).inputs
    assert (bucket["publicAccessPrevention"], bucket["uniformBucketLevelAccess"]) == ("enforced", True)
    assert bucket["location"].lower() == program.named(*CLUSTER).inputs["location"]


def test_the_bucket_of_an_environment_is_flat_so_that_it_can_be_deleted_with_all_that_is_in_it() -> None:
    values = stack_values("local")
    values["cluster"]["name"] = "local-try"
    values["teams"]["research"]["namespace"] = "local-try-research"
    values["environment"] = {"source": "local", "expires_at": "2999-01-01T00:00:00Z"}
    bucket = run_program(values).named(*BUCKET).inputs
    assert bucket["forceDestroy"] is True
    assert "hierarchicalNamespace" not in bucket
