"""The JobSet of a call, and what a stack tells those who call."""

from typing import Any

from infra.jobs import KEPT_SECONDS, CallJob, CallSettings, call_jobset, call_secret, call_settings, call_spec_of
from infra.jobset import render
from infra.names import METRICS_PORT_NAME
from infra.settings.read import parse
from tests.infra.one_job import only_submission
from tests.infra.recording import Values, run_program
from workloads.spec import CALL_KEY_VARIABLE, CallSpec, SliceSpec

IMAGE = "trainer@sha256:0"


def told(values: Values) -> CallSettings:
    return CallSettings.model_validate(call_settings(parse(values), IMAGE))


def call(values: Values, max_hours: float = 24) -> dict[str, Any]:
    settings = told(values)
    spec = CallSpec(
        id="train-1",
        folder="gs://bucket/calls/train-1",
        manifest_sha256="0" * 64,
        public_key="1" * 64,
        slices=settings.slices_of("trillium", 2),
        start_minutes=15,
        check_slices=False,
        max_hours=max_hours,
        return_minutes=10,
    )
    return call_jobset(CallJob(spec, "train", "research", "trillium", "high"), settings)


def template(manifest: Any) -> Any:
    return manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]


def test_what_a_stack_tells_is_read_back_with_every_kind_of_capacity(values: Values) -> None:
    for capacity in (
        "spot",
        {"kind": "reservation", "name": "ours", "project": "theirs"},
        {"kind": "flex-start", "max_run_hours": 3},
    ):
        values["slices"]["trillium"]["capacity"] = capacity
        settings = parse(values)
        assert told(values).slices == settings.slices
        assert told(values).image == IMAGE


def test_a_call_runs_as_the_stacks_job_would_but_for_what_it_runs(values: Values) -> None:
    job, made = render(only_submission(parse(values), IMAGE)), call(values)
    (of_job,), (of_call,) = template(job)["spec"]["containers"], template(made)["spec"]["containers"]
    assert of_call["command"] == ["python", "-m", "workloads.call"]
    # Who collects metrics asks the trainer alone.
    assert of_call["ports"] == [port for port in of_job["ports"] if port["name"] != METRICS_PORT_NAME]
    for name in ("resources", "securityContext", "image"):
        assert of_call[name] == of_job[name]
    for name in ("nodeSelector", "tolerations", "serviceAccountName", "securityContext"):
        assert template(made)["spec"][name] == template(job)["spec"][name]
    # The trainer alone marks a bad host, so it alone gets at the API server.
    assert of_call["volumeMounts"] == [mount for mount in of_job["volumeMounts"] if mount["name"] != "api-access"]
    volumes = [volume for volume in template(job)["spec"]["volumes"] if volume["name"] != "api-access"]
    assert template(made)["spec"]["volumes"] == volumes
    assert made["spec"]["failurePolicy"]["rules"] == job["spec"]["failurePolicy"]["rules"]  # pyright: ignore
    assert made["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "high"


def test_the_key_of_a_call_is_in_a_secret_that_goes_with_the_jobset_and_nowhere_in_it(values: Values) -> None:
    made = call(values)
    made["metadata"]["uid"] = "1-2-3"
    secret = call_secret(made, "the key")
    (container,) = template(made)["spec"]["containers"]
    (key,) = (variable for variable in container["env"] if variable["name"] == CALL_KEY_VARIABLE)
    assert key["valueFrom"]["secretKeyRef"] == {"name": secret["metadata"]["name"], "key": CALL_KEY_VARIABLE}
    assert secret["stringData"] == {CALL_KEY_VARIABLE: "the key"}
    (owner,) = secret["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("JobSet", "train-1", "1-2-3")
    assert secret["metadata"]["namespace"] == made["metadata"]["namespace"]


def test_a_call_starts_once_and_its_jobset_goes_a_day_after_its_end(values: Values) -> None:
    made = call(values)
    assert made["spec"]["failurePolicy"]["maxRestarts"] == 0
    assert made["spec"]["ttlSecondsAfterFinished"] == KEPT_SECONDS == 86_400


def test_chips_are_free_after_the_limit_though_no_host_can_act(values: Values) -> None:
    label = "kueue.x-k8s.io/max-exec-time-seconds"
    assert call(values, max_hours=2)["metadata"]["labels"][label] == str(2 * 3600 + 2 * 15 * 60)


def test_a_call_is_known_by_its_jobset_and_other_jobs_are_none(values: Values) -> None:
    found = call_spec_of(call(values))
    assert found
    assert (found.id, found.slices) == ("train-1", told(values).slices_of("trillium", 2))
    assert isinstance(found.slices, SliceSpec)
    assert call_spec_of(render(only_submission(parse(values), IMAGE))) is None  # pyright: ignore[reportArgumentType]


def test_the_program_exports_what_calls_need(values: Values) -> None:
    exported = CallSettings.model_validate(run_program(values).exports["calls"])
    assert exported == told(values).model_copy(update={"image": exported.image})
    assert "@sha256:" in exported.image
