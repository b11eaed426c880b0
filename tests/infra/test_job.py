"""What a job refuses, and its price and secrets in the cluster."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
from pulumi.runtime import rpc

from infra.job import JobArgs
from infra.stack.settings.errors import SettingsError
from infra.stack.settings.read import parse
from infra.stack.settings.stack import FleetSpec
from tests.infra.one_job import IMAGE, only_job, template_of
from tests.infra.recording import Recording, Values, run_program, stack_values

SETTINGS = parse(stack_values("local"))
FLEET = FleetSpec(cloud=SETTINGS.cloud, slices=SETTINGS.slices, teams=SETTINGS.teams, bucket="b")


@pytest.mark.parametrize(
    ("changed", "arguments", "wrong"),
    [
        ({"team": "others"}, {}, "job.team"),
        ({"secrets": ("TOKEN",)}, {}, "job.secrets"),
        ({}, {"image": None}, "image"),
        ({}, {"secrets": {"1st": "hidden"}}, "secrets.1st"),
    ],
)
def test_a_job_that_does_not_fit_its_fleet_is_refused_before_anything_is_declared(
    changed: dict[str, Any], arguments: dict[str, Any], wrong: str
) -> None:
    job = only_job(SETTINGS)
    JobArgs(fleet=FLEET, job=job, image=IMAGE)
    valid: dict[str, Any] = {"fleet": FLEET, "job": job.model_copy(update=changed), "image": IMAGE}
    with pytest.raises(SettingsError) as refused:
        JobArgs(**(valid | arguments))
    assert [error.path for error in refused.value.errors] == [wrong]


def test_a_job_fits_a_fleet_that_is_too_large_for_the_default_network() -> None:
    (group,) = SETTINGS.slices.values()
    huge = replace(FLEET, slices={"trillium": group.model_copy(update={"count": 20_000})})
    assert JobArgs(fleet=huge, job=only_job(SETTINGS), image=IMAGE).fleet.slices["trillium"].hosts == 40_000


PRICE = "kubernetes:core/v1:ConfigMap"
JOB = ("kubernetes:jobset.x-k8s.io/v1alpha2:JobSet", "job-tiny")
CANARY = "hf_canary"
SECRET = "kubernetes:core/v1:Secret"
SECRET_JOB = ("kubernetes:jobset.x-k8s.io/v1alpha2:JobSet", "job-ablation")


def _priced(values: Values, usd_per_chip_hour: float) -> Values:
    groups = dict.fromkeys(values["slices"], usd_per_chip_hour)
    return deepcopy(values) | {"prices": {"usd_per_chip_hour": groups}}


def test_another_price_changes_nothing_but_the_price_in_place(values: Values) -> None:
    before, after = run_program(_priced(values, 2.0)), run_program(_priced(values, 3.0))
    assert before.named(*JOB).inputs == after.named(*JOB).inputs
    assert before.starting(PRICE, "price-")[0].inputs != after.starting(PRICE, "price-")[0].inputs
    (provider,) = before.of_type("pulumi:providers:kubernetes")
    assert provider.inputs["enableConfigMapMutable"] == "true"


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
