"""Slices that a stack declares, by the outputs that its program writes."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from cli.observed.slices import without_hosts
from infra.cost import BILL_OUTPUT, bill
from infra.settings.read import parse
from tests.infra.recording import Values, run_program, stack_values

POOL = "gcp:container/nodePool:NodePool"


def outputs(values: Values) -> Mapping[str, Any]:
    """As Pulumi tells them."""
    told = bill(parse(values), {}, None).model_dump(exclude={"delta"}, exclude_none=True)
    return json.loads(json.dumps({BILL_OUTPUT: told}))


def test_a_slice_without_hosts_is_named_with_its_topology_and_one_with_hosts_is_not() -> None:
    told = outputs(stack_values("local"))
    assert without_hosts(told, ["trillium-0", "system"]) == {"trillium-1": "2x4"}
    assert without_hosts(told, ["trillium-0", "trillium-1"]) == {}


def test_slices_have_the_names_of_the_node_pools_that_the_program_declares() -> None:
    values = stack_values("local")
    pools = [pool.inputs["name"] for pool in run_program(values).of_type(POOL)]
    assert {"system", *(without_hosts(outputs(values), []) or {})} == {*pools}


@pytest.mark.parametrize("kind", ["flex-start", "queued"])
def test_slices_that_come_on_request_may_be_away(kind: str) -> None:
    values = stack_values("local")
    values["slices"]["trillium"]["capacity"] = {"kind": kind, "max_run_hours": 2}
    values["job"]["slices"]["count"] = 1
    assert without_hosts(outputs(values), []) == {}


@pytest.mark.parametrize("told", [{}, {BILL_OUTPUT: {"at_once": {"usd_per_hour": 21.6}}}])
def test_outputs_of_another_version_tell_nothing(told: Mapping[str, Any]) -> None:
    assert without_hosts(told, []) is None
