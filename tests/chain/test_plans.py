"""A plan that a preview saved is carried out as it was previewed, or not at all."""

from pathlib import Path

import pytest
from pulumi.automation import CommandError

from tests.chain.shared import held
from tests.chain.stack import Chain, Operations, ignore
from tests.infra.recording import Values

pytestmark = pytest.mark.complete


def test_a_saved_plan_is_carried_out_and_nothing_else(chain: Chain, tmp_path: Path):
    plan, previewed, happened = tmp_path / "plan.json", Operations(), Operations()
    chain.engine_on(_of_system_nodes(1)).up(ignore)
    chain.engine_on(_of_system_nodes(2)).preview(previewed, plan)
    with pytest.raises(CommandError, match="violates plan"):
        chain.engine_on(_of_system_nodes(3)).up(ignore, plan)
    chain.engine_on(_of_system_nodes(2)).up(happened, plan)
    assert previewed.changes == {("update", "cluster-system")}
    assert happened.changes == previewed.changes


def _of_system_nodes(count: int) -> Values:
    values = held()
    values["cluster"]["system_nodes"] = count
    return values
