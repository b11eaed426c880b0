"""A stack whose budget is used up: its job is stopped, stays stopped, and continues when the budget is raised.

The tests build on each other's state, as the steps of one story.
"""

import json
from collections.abc import Generator
from typing import Any

import pytest
import yaml
from pulumi.automation import CommandError
from typer.testing import CliRunner

from cli import stack_file
from cli.main import app
from infra.stack.names import NO_JOB_RUNS
from tests.chain.commands import answered
from tests.chain.stack import Chain, Operations, ignore, wait_until
from tests.infra.recording import Values, stack_values

pytestmark = pytest.mark.complete

JOB = "stopped"


def _stack(usd_total: float, max_hours: float) -> Values:
    """A stack whose job trains on one slice, for 21.60 dollars an hour, until it is stopped."""
    values: Any = stack_values("local")
    values["job"] |= {
        "name": JOB,
        "slices": {"group": "trillium", "count": 1},
        "max_hours": max_hours,
        "training": {"steps": 100_000, "save_every_steps": 5, "evaluate_every_steps": 100_000},
    }
    return values | {"budget": {"usd_total": usd_total}}


ENOUGH, SPENT = _stack(1000, 24), _stack(0.03, 0.001)
"""The second budget pays for five seconds."""


@pytest.fixture(scope="module")
def stack(chain: Chain) -> Generator[Chain]:
    chain.engine_on(ENOUGH).up(ignore)
    chain.wait_for_step(JOB, 6)
    yield chain
    chain.engine_on(ENOUGH).destroy(ignore, [NO_JOB_RUNS])


@pytest.fixture(autouse=True)
def _own_stack_files(stack: Chain, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_file, "stacks_folder", lambda: stack.folder)


def enforced(stack: Chain, values: Values) -> tuple[int, Any]:
    """Exit status and answer of the command about a stack file with these values."""
    stack.written(values)
    line = ["enforce-budget", "-s", "local", "--engine", "sandbox", "--sandbox", str(stack.site.root), "-o", "json"]
    ended = CliRunner().invoke(app, line)
    assert ended.exit_code in (0, 2), ended.output
    return ended.exit_code, json.loads(ended.stdout)


def story(stack: Chain) -> str:
    return yaml.safe_dump([*stack.objects("clusterqueues"), *stack.objects("workloads")])


def test_a_stack_within_its_budget_is_left_alone(stack: Chain) -> None:
    before = stack.identity(JOB)
    status, found = enforced(stack, ENOUGH)
    assert (status, found["used_up"], found["changed"]) == (0, False, [])
    (team,) = found["teams"]
    assert team["team"] == "research"
    assert 0 < team["usd"] < 10
    assert enforced(stack, ENOUGH)[1]["usd_used"] > team["usd"]
    assert stack.identity(JOB) == before


def test_a_job_over_budget_saves_and_frees_its_chips_once(stack: Chain) -> None:
    status, found = enforced(stack, SPENT)
    assert (status, found["used_up"], found["changed"]) == (2, True, ["research"])
    wait_until(lambda: stack.pods(JOB) == [], lambda: story(stack))
    last = max(stack.losses(JOB))
    assert answered(stack, "status", JOB)["jobs"][0]["checkpoint_step"] == last
    assert enforced(stack, SPENT)[1]["changed"] == []
    (found,) = [each for each in answered(stack, "explain", JOB)["findings"] if each["cause"] == "queue closed"]
    assert "raise budget.usd_total" in found["next"][0]
    assert "of $0.03 used" in found["evidence"][0]


def test_an_up_does_not_resume_it(stack: Chain) -> None:
    engine, operations = stack.engine_on(ENOUGH), Operations()
    engine.up(operations)
    assert operations.changes == set()
    engine.refresh(ignore)
    with pytest.raises(CommandError) as refused:
        engine.up(ignore)
    assert "budget.usd_total of the stack is used up" in str(refused.value)
    (queue,) = stack.objects("clusterqueues")
    assert queue["spec"]["stopPolicy"] == "HoldAndDrain"
    assert stack.pods(JOB) == []


def test_a_higher_budget_resumes_it_where_it_stopped(stack: Chain) -> None:
    last = max(stack.losses(JOB))
    status, found = enforced(stack, ENOUGH)
    assert (status, found["changed"], found["stopped"]) == (0, ["research"], [])
    stack.wait_for_step(JOB, last + 2)
    (job,) = answered(stack, "status", JOB)["stack"]["jobs"]
    assert job["files"]["newest"]["run"] == f"resumed at step {last}"
    stack.engine_on(ENOUGH).up(ignore)
    operations = Operations()
    stack.engine_on(ENOUGH).up(operations)
    assert operations.changes == set()
    (queue,) = stack.objects("clusterqueues")
    assert queue["spec"].get("stopPolicy", "None") == "None"
