"""Jobs that members submit: the rules of the stack file, on what the stack has published."""

import re
from typing import Any

import pytest

from infra.stack.published import Published
from infra.stack.settings.errors import SettingsError
from infra.stack.settings.read import parse
from infra.stack.settings.submitted import read_submitted
from tests.infra.one_job import unnamed
from tests.infra.recording import Values, stack_values

IMAGE = f"trainer@sha256:{'1' * 64}"
CONTAINER: Values = {
    "kind": "container",
    "slices": {"group": "trillium", "count": 1},
    "priority": "normal",
    "max_restarts": 0,
    "image": IMAGE,
}


def training(**changes: object) -> Values:
    return {**unnamed(stack_values("local")), **changes}


def published(**sections: object) -> Published:
    usual = stack_values("local")
    settings = parse({key: value for key, value in usual.items() if key != "job" or "jobs" not in sections} | sections)
    return Published.of("local", settings, "research", IMAGE)


def errors(section: Values, record: Published | None = None, name: str = "mine") -> list[str]:
    with pytest.raises(SettingsError) as raised:
        read_submitted(name, section, record or published())
    return [str(error) for error in raised.value.errors]


def test_a_job_and_the_runs_of_a_sweep_are_the_only_jobs_of_the_settings() -> None:
    assert [*read_submitted("mine", CONTAINER, published()).jobs] == ["mine"]
    sweep = training(sweep={"training.seed": [0, 1]})
    assert [*read_submitted("mine", sweep, published()).jobs] == ["mine-0", "mine-1"]


def test_a_job_has_another_name_than_those_of_the_stack() -> None:
    (found,) = errors(CONTAINER, name="tiny")
    assert "expected a name other than those of the stack's own jobs: tiny" in found


def test_the_budget_holds_for_a_submitted_job() -> None:
    record = published(budget={"usd_total": 100}, jobs={}, prices={"usd_per_chip_hour": {"trillium": 1}})
    assert "without max_hours" in errors(CONTAINER, record)[0]
    assert "a job that costs at most $100.00" in errors({**CONTAINER, "max_hours": 20}, record)[0]
    assert read_submitted("mine", {**CONTAINER, "max_hours": 10}, record).jobs


def test_groups_are_in_the_order_of_the_teams_queue() -> None:
    values: Any = stack_values("local")
    values["slices"]["other"] = {**values["slices"]["trillium"], "capacity": "spot"}
    values["teams"]["research"]["quota"] = {"trillium": 16, "other": 16}
    record = Published.of("local", parse(values), "research", IMAGE)
    assert read_submitted(
        "mine", {**CONTAINER, "slices": {"group": "trillium", "count": 1, "fallback": ["other"]}}, record
    )
    turned = {**CONTAINER, "slices": {"group": "other", "count": 1, "fallback": ["trillium"]}}
    assert "expected the order of the team's queue: trillium, other" in errors(turned, record)[0]


def test_what_only_the_stack_file_can_have_is_not_asked_of_a_member() -> None:
    record = published().model_copy(update={"image": None})
    (image,) = errors(training(), record)
    (secret,) = errors({**CONTAINER, "secrets": ["TOKEN"]})
    (tracker,) = errors(training(trackers={"wandb": {"project": "mine"}}))
    for error in (image, secret, tracker):
        assert not re.search("to the stack file|add the secret|pulumi config", error)
