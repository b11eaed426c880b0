"""What a job refuses."""

from dataclasses import replace
from typing import Any

import pytest

from infra.job import JobArgs
from infra.settings.errors import SettingsError
from infra.settings.read import parse
from infra.submission import FleetPlace
from tests.infra.one_job import IMAGE, only_job
from tests.infra.recording import stack_values

SETTINGS = parse(stack_values("local"))
FLEET = FleetPlace(cloud=SETTINGS.cloud, slices=SETTINGS.slices, teams=SETTINGS.teams, bucket="b")


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
