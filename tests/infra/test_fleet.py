"""What a fleet refuses."""

from dataclasses import replace
from typing import Any

import pytest

from infra.fleet import FleetArgs
from infra.gke_cluster import ClusterOutputs, SharedCluster, SubnetNames
from infra.stack.access import Allowance
from infra.stack.settings.errors import SettingsError
from infra.stack.settings.read import parse
from infra.stack.settings.schema import Quota
from infra.stack.settings.stack import FleetSpec
from tests.infra.recording import stack_values

SETTINGS = parse(stack_values("local"))
CLUSTER = ClusterOutputs(name="c", endpoint="c.example", node_account="nodes@x")


def _errors(cluster: ClusterOutputs = CLUSTER, **changes: Any) -> list[str]:
    changed = {name: changes.pop(name) for name in ("slices", "teams", "prefix") if name in changes}
    try:
        FleetArgs(spec=replace(FleetSpec.of(SETTINGS), **changed), cluster=cluster, **changes)
    except SettingsError as refused:
        return [error.path for error in refused.errors]
    return []


def test_all_errors_of_a_fleet_are_reported_before_anything_is_declared() -> None:
    team = SETTINGS.teams["research"].model_copy(update={"quota": {"other": Quota(chips=8)}})
    found = _errors(teams={"research": team}, allowances={"others": Allowance()})
    assert found == ["teams.research.quota", "allowances.others"]


@pytest.mark.parametrize(("prefix", "wrong"), [("", True), ("research-", False)])
def test_a_cluster_that_others_use_needs_a_prefix_of_names(prefix: str, wrong: bool) -> None:
    shared = replace(CLUSTER, shared=SharedCluster(location="us-east5"))
    assert ("spec.prefix" in _errors(shared, prefix=prefix)) == wrong


@pytest.mark.parametrize(("second", "wrong"), [(None, True), (SubnetNames("a", "b"), False)])
def test_a_second_interface_needs_a_second_network(second: SubnetNames | None, wrong: bool) -> None:
    group = SETTINGS.slices["trillium"].model_copy(update={"topology": "4x4", "second_network": True})
    cluster = ClusterOutputs(name="c", endpoint="c.example", node_account="nodes@x", second_network=second)
    assert ("slices.trillium.second_network" in _errors(cluster, slices={"trillium": group})) == wrong
