import pytest

from sandbox.providers.plugin import Refusal
from sandbox.providers.resource_types import CLUSTER, NODE_POOL, filled, row
from sandbox.providers.values import Change


@pytest.mark.parametrize(
    ("path", "kind", "replaced"),
    [
        ("nodeConfig.spot", "UPDATE", True),
        ("nodeConfig.secondaryBootDisks[0].diskImage", "UPDATE", True),
        ("nodeConfig.machineType", "UPDATE", False),
        ("nodeConfig.labels.team", "UPDATE", False),
        ("nodeCount", "UPDATE", False),
        ("initialNodeCount", "UPDATE", True),
        ("placementPolicy", "ADD", True),
        ("placementPolicy", "DELETE", True),
        ("placementPolicy.tpuTopology", "UPDATE", False),
        ("placementPolicy.policyName", "UPDATE", True),
    ],
)
def test_a_node_pool_is_replaced_by_what_forces_it(path: str, kind: str, replaced: bool) -> None:
    change = Change(path, kind)  # pyright: ignore[reportArgumentType]
    assert row(NODE_POOL).is_replaced_by(change) is replaced


def test_a_cluster_changes_its_endpoints_in_place_and_its_network_not() -> None:
    assert not row(CLUSTER).is_replaced_by(Change("controlPlaneEndpointsConfig.dnsEndpointConfig", "UPDATE"))
    assert row(CLUSTER).is_replaced_by(Change("network", "UPDATE"))


def test_an_unlisted_type_is_kept_under_a_general_id() -> None:
    facts = {"project": "p", "name": "n"}
    assert filled(row("gcp:monitoring/dashboard:Dashboard").id, facts) == "projects/p/Dashboards/n"


def test_a_missing_fact_is_told_as_a_missing_field() -> None:
    with pytest.raises(Refusal, match="^location: required field is not set$"):
        filled(row(CLUSTER).id, {"project": "p", "name": "n"})
