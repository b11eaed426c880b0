"""The job's price on its way to the pods."""

from copy import deepcopy
from typing import Any

import pytest

from infra.jobs import usd_per_job_hour
from infra.settings.read import parse
from tests.infra.one_job import only_group, only_job
from tests.infra.recording import Recording, Values, run_program, stack_values

PRICE = "kubernetes:core/v1:ConfigMap"
JOB = ("kubernetes:jobset.x-k8s.io/v1alpha2:JobSet", "job-tiny")


def _priced(values: Values, usd_per_chip_hour: float) -> Values:
    groups = dict.fromkeys(values["slices"], usd_per_chip_hour)
    return deepcopy(values) | {"prices": {"usd_per_chip_hour": groups}}


def _env(program: Recording) -> list[Any]:
    (job_set,) = program.of_type(JOB[0])
    job = job_set.inputs["spec"]["replicatedJobs"][0]["template"]["spec"]
    return job["template"]["spec"]["containers"][0]["env"]


def test_the_price_of_all_slices_of_the_job_is_there_before_its_pods_look_for_it(values: Values) -> None:
    program = run_program(_priced(values, 2.0))
    (found,) = program.starting(PRICE, "price-")
    settings = parse(values)
    chips = only_job(settings).slices.count * only_group(settings).shape.chips
    assert found.inputs["data"] == {"usd_per_hour": str(2.0 * chips)}
    (variable,) = [variable for variable in _env(program) if variable["name"] == "USD_PER_HOUR"]
    name, namespace = found.inputs["metadata"]["name"], found.inputs["metadata"]["namespace"]
    assert variable["valueFrom"]["configMapKeyRef"] == {"name": name, "key": "usd_per_hour", "optional": True}
    assert namespace == program.named(*JOB).inputs["metadata"]["namespace"]
    assert found.urn in program.closure(program.named(*JOB))


def test_another_price_changes_nothing_but_the_price_in_place(values: Values) -> None:
    before, after = run_program(_priced(values, 2.0)), run_program(_priced(values, 3.0))
    assert before.named(*JOB).inputs == after.named(*JOB).inputs
    assert before.starting(PRICE, "price-")[0].inputs != after.starting(PRICE, "price-")[0].inputs
    (provider,) = before.of_type("pulumi:providers:kubernetes")
    assert provider.inputs["enableConfigMapMutable"] == "true"


def test_an_unknown_price_is_not_declared() -> None:
    program = run_program(stack_values("staging"))
    assert program.starting(PRICE, "price-") == []
    assert "USD_PER_HOUR" in [variable["name"] for variable in _env(program)]


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
    assert usd_per_job_hour(either, job) == (None if usd_per_hour is None else usd_per_hour * chips)
