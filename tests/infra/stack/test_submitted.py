"""The JobSets and secrets of function calls."""

from typing import Any

from infra.stack.job_objects import CallJob, call_jobset, call_secret, call_spec_of
from infra.stack.jobset import render
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


def test_a_call_is_known_by_its_jobset_and_other_jobs_are_none(values: Values) -> None:
    found = call_spec_of(call(values))
    assert found
    assert (found.id, found.slices) == ("train-1", published(values).slices_of("trillium", 2))
    assert isinstance(found.slices, SliceSpec)
    assert call_spec_of(render(only_submission(parse(values), IMAGE))) is None  # pyright: ignore[reportArgumentType]
