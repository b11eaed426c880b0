"""The image that the job runs, wherever it comes from, and what its repository keeps."""

from tests.infra.recording import BUILT_DIGEST, ROOT, Recording, Values, run_program

IMAGE = ("docker-build:index:Image", "trainer")
JOB = ("kubernetes:jobset.x-k8s.io/v1alpha2:JobSet", "job-tiny")


def test_the_repository_keeps_recent_and_tagged_images_and_its_tags_stay_where_they_are(program: Recording) -> None:
    (repository,) = program.of_type("gcp:artifactregistry/repository:Repository")
    policies = {policy["action"]: policy for policy in repository.inputs["cleanupPolicies"]}
    assert policies["KEEP"]["mostRecentVersions"]["keepCount"] > 0
    assert policies["DELETE"]["condition"]["tagState"] == "UNTAGGED"
    assert repository.inputs["dockerConfig"] == {"immutableTags": True}


def _job_image(recording: Recording) -> str:
    (replicated,) = recording.named(*JOB).inputs["spec"]["replicatedJobs"]
    (container,) = replicated["template"]["spec"]["template"]["spec"]["containers"]
    return container["image"]


def test_an_image_that_lies_in_a_registry_is_run_as_it_is_named(values: Values) -> None:
    recording = run_program(values)
    assert _job_image(recording) == values["image"]["reference"]
    assert recording.of_type(IMAGE[0]) == []


def test_a_built_image_goes_to_the_stacks_repository_and_is_run_by_digest(values: Values) -> None:
    values["image"] = {"build": True}
    recording = run_program(values)
    image = recording.named(*IMAGE)
    destination = "us-east5-docker.pkg.dev/my-project/multislice-dev/trainer"
    assert _job_image(recording) == f"{destination}@{BUILT_DIGEST}"
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
