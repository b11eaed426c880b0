"""The JobSets and secrets of function calls."""

from dataclasses import replace
from typing import Any

from infra.stack.job_objects import KEPT_SECONDS, CallJob, call_jobset, call_secret, call_spec_of
from infra.stack.jobset import render
from infra.stack.names import METRICS_PORT_NAME
from infra.stack.published import Published
from infra.stack.settings.read import parse
from tests.infra.one_job import only_submission, template_of
from tests.infra.recording import Values
from workloads.spec import CALL_KEY_VARIABLE, Backend, CallSpec, SliceSpec

IMAGE = "trainer@sha256:0"


def published(values: Values) -> Published:
    return Published.of("local", parse(values), "research", IMAGE)


def call(values: Values, max_hours: float = 24, count: int = 2, backend: Backend = "direct") -> dict[str, Any]:
    settings = published(values)
    spec = CallSpec(
        id="train-1",
        folder="gs://bucket/calls/train-1",
        manifest_sha256="0" * 64,
        public_key="1" * 64,
        slices=settings.slices_of("trillium", count),
        backend=backend,
        start_minutes=15,
        check_slices=False,
        max_hours=max_hours,
        hang_minutes=10,
        return_minutes=10,
    )
    return call_jobset(CallJob(spec, "train", "research", "trillium", "high"), settings)


def test_a_call_runs_as_the_stacks_job_would_but_for_what_it_runs(values: Values) -> None:
    job, made = render(only_submission(parse(values), IMAGE)), call(values)
    (of_job,), (of_call,) = template_of(job)["spec"]["containers"], template_of(made)["spec"]["containers"]
    assert of_call["command"] == ["python", "-m", "workloads.call"]
    # Who collects metrics asks the trainer alone.
    assert of_call["ports"] == [port for port in of_job["ports"] if port["name"] != METRICS_PORT_NAME]
    for name in ("resources", "securityContext", "image"):
        assert of_call[name] == of_job[name]
    for name in ("nodeSelector", "tolerations", "serviceAccountName", "securityContext"):
        assert template_of(made)["spec"][name] == template_of(job)["spec"][name]
    # The trainer alone marks a bad host, so it alone gets at the API server.
    assert of_call["volumeMounts"] == [mount for mount in of_job["volumeMounts"] if mount["name"] != "api-access"]
    volumes = [volume for volume in template_of(job)["spec"]["volumes"] if volume["name"] != "api-access"]
    assert template_of(made)["spec"]["volumes"] == volumes
    # It has no supervisor, so that JobSet restarts all slices.
    usual = only_submission(parse(values), IMAGE)
    of_all: Any = render(replace(usual, fleet=replace(usual.fleet, restarts_slices=False)))
    assert made["spec"]["failurePolicy"]["rules"] == of_all["spec"]["failurePolicy"]["rules"]
    assert made["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "high"


def test_a_call_has_the_rights_that_the_stack_gives_to_functions(values: Values) -> None:
    spec = template_of(call(values | {"functions": {"run_as_user": 0, "privileged": True}}))["spec"]
    assert (spec["securityContext"]["runAsUser"], spec["securityContext"]["runAsNonRoot"]) == (0, False)
    assert spec["containers"][0]["securityContext"]["privileged"] is True


def test_the_key_of_a_call_is_in_a_secret_that_goes_with_the_jobset_and_nowhere_in_it(values: Values) -> None:
    made = call(values)
    made["metadata"]["uid"] = "1-2-3"
    secret = call_secret(made, "the key")
    (container,) = template_of(made)["spec"]["containers"]
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
    assert (found.id, found.slices) == ("train-1", published(values).slices_of("trillium", 2))
    assert isinstance(found.slices, SliceSpec)
    assert call_spec_of(render(only_submission(parse(values), IMAGE))) is None  # pyright: ignore[reportArgumentType]
