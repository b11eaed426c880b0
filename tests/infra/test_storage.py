"""The checkpoint bucket and the image."""

import pytest
from pulumi import RunError

from tests.infra.one_job import template_of
from tests.infra.recording import BUILT_DIGEST, ROOT, Values, run_program

BUCKET = ("gcp:storage/bucket:Bucket", "checkpoints")
CLUSTER = ("gcp:container/cluster:Cluster", "cluster")


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
JOB = ("kubernetes:jobset.x-k8s.io/v1alpha2:JobSet", "job-tiny")


def test_a_built_image_goes_to_the_stacks_repository_and_is_run_by_digest(values: Values) -> None:
    values["image"] = {"build": True}
    recording = run_program(values)
    image = recording.named(*IMAGE)
    destination = "us-east5-docker.pkg.dev/my-project/multislice-dev/trainer"
    (container,) = template_of(recording.named(*JOB).inputs)["spec"]["containers"]
    assert container["image"] == f"{destination}@{BUILT_DIGEST}"
    (export,) = image.inputs["exports"]
    assert export["registry"] == {**export["registry"], "names": [destination], "push": True, "pushByDigest": True}
    assert (ROOT / image.inputs["context"]["location"]).samefile(ROOT)
    assert (ROOT / image.inputs["dockerfile"]["location"]).is_file()
    assert image.urn in recording.closure(recording.named(*JOB))


def test_a_refused_destroy_has_not_deleted_the_built_image_of_a_stack_without_jobs(values: Values) -> None:
    recording = run_program(
        {**{key: value for key, value in values.items() if key != "job"}, "jobs": {}, "image": {"build": True}}
    )
    mark = recording.named("kubernetes:core/v1:ConfigMap", "in-use")
    assert recording.named(*IMAGE).urn in recording.closure(mark)


def test_a_preview_builds_nothing_and_still_declares_the_job(values: Values) -> None:
    values["image"] = {"build": True}
    recording = run_program(values, preview=True)
    assert recording.named(*IMAGE).inputs["buildOnPreview"] is False
    assert recording.named(*JOB)
