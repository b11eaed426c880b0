"""The jobs in the cluster: replacement, secrets and calls of functions."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from pulumi.runtime import rpc

from infra.cost import usd_per_job_hour
from infra.jobset import render
from infra.names import METRICS_PORT_NAME
from infra.published import Published
from infra.settings.read import parse
from infra.submission import FleetPlace
from infra.submitted import KEPT_SECONDS, CallJob, call_jobset, call_secret, call_spec_of
from tests.infra.one_job import only_group, only_job, only_submission, template_of
from tests.infra.recording import Recording, Values, run_program
from workloads.spec import CALL_KEY_VARIABLE, Backend, CallSpec, SliceSpec

PRICE = "kubernetes:core/v1:ConfigMap"
JOB = ("kubernetes:jobset.x-k8s.io/v1alpha2:JobSet", "job-tiny")


def _priced(values: Values, usd_per_chip_hour: float) -> Values:
    groups = dict.fromkeys(values["slices"], usd_per_chip_hour)
    return deepcopy(values) | {"prices": {"usd_per_chip_hour": groups}}


def test_another_price_changes_nothing_but_the_price_in_place(values: Values) -> None:
    before, after = run_program(_priced(values, 2.0)), run_program(_priced(values, 3.0))
    assert before.named(*JOB).inputs == after.named(*JOB).inputs
    assert before.starting(PRICE, "price-")[0].inputs != after.starting(PRICE, "price-")[0].inputs
    (provider,) = before.of_type("pulumi:providers:kubernetes")
    assert provider.inputs["enableConfigMapMutable"] == "true"


@pytest.mark.parametrize(("second", "usd_per_hour"), [(2.0, 2.0), (1.0, None)])
def test_groups_of_different_prices_leave_the_price_of_the_job_open(
    two_teams: Values, second: float, usd_per_hour: float | None
) -> None:
    settings = parse(two_teams)
    job, group = only_job(settings), only_group(settings)
    prices = settings.prices.model_copy(update={"usd_per_chip_hour": {"a": 2.0, "b": second}})
    slices = job.slices.model_copy(update={"group": "a", "fallback": ("b",)})
    job = job.model_copy(update={"slices": slices})
    either = settings.model_copy(update={"slices": {"a": group, "b": group}, "prices": prices, "jobs": {job.name: job}})
    chips = job.slices.count * group.shape.chips
    assert usd_per_job_hour(FleetPlace.of(either), job) == (None if usd_per_hour is None else usd_per_hour * chips)


CANARY = "hf_canary"
SECRET = "kubernetes:core/v1:Secret"
SECRET_JOB = ("kubernetes:jobset.x-k8s.io/v1alpha2:JobSet", "job-ablation")


def _program(values: Values, *names: str) -> Recording:
    return run_program(values | {"secrets": dict.fromkeys(names, CANARY)}, secret=["secrets"])


def test_secrets_are_one_object_in_the_namespace_of_the_jobs_team(two_teams: Values) -> None:
    program = _program(two_teams, "HF_TOKEN", "WANDB_API_KEY")
    (found,) = program.starting(SECRET, "secrets-")
    assert found.inputs["metadata"] == {"name": "ablation-secrets", "namespace": "research"}
    assert rpc.is_rpc_secret(found.inputs["stringData"])
    assert found.inputs["stringData"]["value"] == {"HF_TOKEN": CANARY, "WANDB_API_KEY": CANARY}
    assert found.urn in program.closure(program.named(*SECRET_JOB))


def test_pods_take_each_variable_by_reference_and_nothing_else_changes(two_teams: Values) -> None:
    def container(program: Recording) -> Any:
        return template_of(program.named(*SECRET_JOB).inputs)["spec"]["containers"][0]

    without, with_secrets = container(run_program(two_teams)), container(_program(two_teams, "WANDB_API_KEY"))
    reference = {"secretKeyRef": {"name": "ablation-secrets", "key": "WANDB_API_KEY"}}
    added = [variable for variable in with_secrets["env"] if variable not in without["env"]]
    assert added == [{"name": "WANDB_API_KEY", "valueFrom": reference}]
    assert with_secrets | {"env": without["env"]} == without


def test_a_value_is_in_no_other_resource_and_no_output(two_teams: Values) -> None:
    program = _program(two_teams, "HF_TOKEN")
    others = [found.inputs for found in program.registrations if found.type != SECRET]
    assert CANARY not in f"{others}{program.exports}"


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
    of_all: Any = render(replace(only_submission(parse(values), IMAGE), restarts_slices=False))
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
