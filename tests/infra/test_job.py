"""What a job refuses, and its price and secrets in the cluster."""

from dataclasses import replace
from typing import Any

import pytest
from pulumi.runtime import rpc

from infra.job import JobArgs
from infra.stack.settings.errors import SettingsError
from infra.stack.settings.read import parse
from infra.stack.settings.stack import FleetSpec
from tests.infra.one_job import IMAGE, only_job
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
