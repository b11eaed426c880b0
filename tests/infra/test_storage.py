"""The checkpoint bucket and the image."""

import pytest
from pulumi import RunError

from tests.infra.recording import Values, run_program

BUCKET = ("gcp:storage/bucket:Bucket", "checkpoints")


def test_a_bucket_that_exists_is_adopted(two_teams: Values) -> None:
    name = run_program(two_teams).named(*BUCKET).inputs["name"]
    assert run_program(two_teams).named(*BUCKET).request.importId == ""
    place = two_teams["cloud"]["region"].upper()
    assert run_program(two_teams, buckets={name: place}).named(*BUCKET).request.importId == name


def test_a_bucket_that_exists_in_another_region_is_refused_by_name(two_teams: Values) -> None:
    name = run_program(two_teams).named(*BUCKET).inputs["name"]
    with pytest.raises(RunError, match=f"{name} is in ASIA-EAST1, but cloud.region is"):
        run_program(two_teams, buckets={name: "ASIA-EAST1"})


IMAGE = ("docker-build:index:Image", "trainer")


def test_a_refused_destroy_has_not_deleted_the_built_image_of_a_stack_without_jobs(values: Values) -> None:
    recording = run_program(
        {**{key: value for key, value in values.items() if key != "job"}, "jobs": {}, "image": {"build": True}}
    )
    mark = recording.named("kubernetes:core/v1:ConfigMap", "in-use")
    assert recording.named(*IMAGE).urn in recording.closure(mark)
