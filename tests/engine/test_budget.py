"""What money needs of the real engine: the bill that was deployed, a budget that has expired, and example values.

The stack is one record without a cloud: the engine's state is all that these two know.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pulumi
import pytest
from pulumi import automation

from infra.configuration import require_own_values, require_time_left
from infra.outputs import deployed_bill, export_bill, kept_jobs
from infra.stack.cost import Bill, bill
from infra.stack.settings.read import parse
from infra.stack.settings.schema import Budget
from sandbox import builds
from sandbox.engine import stack_in
from sandbox.site import create
from tests.chain.stack import ignore
from tests.infra.recording import stack_values
from tests.infra.review.known import own

pytestmark = pytest.mark.costs(cpu_seconds=15)

LAST_DAY = date(2026, 3, 1)


class Plan:
    """A program, its settings, and what its previews found deployed."""

    def __init__(self) -> None:
        self.bill: Bill | None = None
        self.now = datetime(2026, 3, 1, 23, 59, tzinfo=UTC)
        self.found: list[Bill | None] = []

    def __call__(self) -> None:
        require_time_left(Budget(expires_on=LAST_DAY), self.now)
        if pulumi.runtime.is_dry_run():
            pulumi.export("found", pulumi.Output.from_input(self._look()))
        if self.bill:
            export_bill(self.bill)

    async def _look(self) -> None:
        self.found.append(await deployed_bill())


@pytest.fixture
def plan() -> Plan:
    return Plan()


@pytest.fixture
def stack(tmp_path: Path, plan: Plan) -> automation.Stack:
    return stack_in(create(tmp_path / "sandbox"), builds.prepare(ignore), "test", plan)


def test_a_plan_knows_the_bill_of_what_is_deployed(stack: automation.Stack, plan: Plan) -> None:
    plan.bill = bill(parse(stack_values("staging")), {}, None)
    stack.preview()
    stack.up()
    deployed, plan.bill = plan.bill, bill(parse(stack_values("local")), {}, None)
    stack.preview()
    assert plan.found == [None, deployed]


def test_an_expired_budget_refuses_changes_and_lets_a_stack_be_destroyed(stack: automation.Stack, plan: Plan) -> None:
    stack.up()
    plan.now += timedelta(days=1)
    refused: list[Callable[[], object]] = [stack.preview, stack.up]
    for change in refused:
        with pytest.raises(automation.CommandError, match=r"budget\.expires_on: .* not past on 2026-03-02, got 2026"):
            change()
    destroyed = stack.destroy()
    assert destroyed.summary.result == "succeeded"
    with pytest.raises(automation.CommandError, match=r"budget\.expires_on"):
        stack.preview()


def test_example_values_are_refused_by_an_update_alone(tmp_path: Path) -> None:
    values = [stack_values("dev")]

    def program() -> None:
        before = require_own_values(parse(values[-1]))
        pulumi.Stash("chips", input=1, opts=pulumi.ResourceOptions(depends_on=before))

    stack = stack_in(create(tmp_path / "sandbox"), builds.prepare(ignore), "test", program)
    stack.preview()
    with pytest.raises(automation.CommandError, match=r"cloud\.project: .* got my-project"):
        stack.up()
    assert "chips" not in str(stack.export_stack().deployment)
    values.append(own("dev"))
    stack.up()
    assert "chips" in str(stack.export_stack().deployment)
    values.pop()
    assert stack.destroy(run_program=True).summary.result == "succeeded"


def test_a_plan_knows_which_objects_it_keeps(tmp_path: Path) -> None:
    values, kept = {"same": 1, "replaced": 1}, list[frozenset[str]]()

    async def look(found: dict[str, pulumi.CustomResource]) -> None:
        kept.append(await kept_jobs(found))

    def program() -> None:
        replaces = pulumi.ResourceOptions(replace_on_changes=["input"], delete_before_replace=True)
        found: dict[str, pulumi.CustomResource] = {
            name: pulumi.Stash(name, input=value, opts=replaces) for name, value in values.items()
        }
        if pulumi.runtime.is_dry_run():
            pulumi.export("looked", pulumi.Output.from_input(look(found)))

    stack = stack_in(create(tmp_path / "sandbox"), builds.prepare(ignore), "test", program)
    stack.up()
    values |= {"replaced": 2, "new": 1}
    stack.preview()
    assert kept == [{"same"}]
