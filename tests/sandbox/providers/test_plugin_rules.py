import pytest

from sandbox.providers.effects import require_cluster, require_node_pool
from sandbox.providers.plugin import Refusal
from sandbox.providers.values import Object

POLICIES = {"standardRolloutPolicy": {"batchNodeCount": 1}, "autoscaledRolloutPolicy": {"waitForDrainDuration": "1s"}}


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"name": "a", "namePrefix": "b"}, "both name and name_prefix"),
        ({"name": "a", "nodeCount": 4, "initialNodeCount": 4}, "both initial_node_count and node_count on node pool a"),
        ({"upgradeSettings": {"strategy": "BLUE_GREEN", "maxSurge": 1}}, "Surge upgrade settings may not be changed"),
        ({"upgradeSettings": {"blueGreenSettings": {}}}, "Blue-green upgrade settings may not be changed"),
        ({"upgradeSettings": {"strategy": "BLUE_GREEN", "blueGreenSettings": POLICIES}}, "cannot be set at the same"),
    ],
)
def test_a_new_pool_whose_settings_exclude_each_other_is_refused(properties: Object, told: str) -> None:
    with pytest.raises(Refusal, match=told):
        require_node_pool(properties, None)


def test_an_existing_pool_is_judged_by_what_changes() -> None:
    surge = {"maxSurge": 0, "maxUnavailable": 1}
    require_node_pool({"upgradeSettings": {"strategy": "SURGE"} | surge}, None)
    require_node_pool({"upgradeSettings": {"strategy": "BLUE_GREEN"} | surge}, {"upgradeSettings": surge})
    with pytest.raises(Refusal, match="Surge upgrade settings"):
        require_node_pool({"upgradeSettings": {"strategy": "BLUE_GREEN"}}, {"upgradeSettings": surge})


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"skipNodePoolRefresh": True, "nodePools": [{}]}, "skip_node_pool_refresh cannot be true"),
        ({"nodeVersion": "1.34", "removeDefaultNodePool": True}, "only be specified if remove_default_node_pool"),
        ({"nodeVersion": "1.34.1-gke.1", "minMasterVersion": "1.34.2-gke.1"}, r"value: 1\.34\.1-gke\.1"),
    ],
)
def test_a_new_cluster_whose_settings_exclude_each_other_is_refused(properties: Object, told: str) -> None:
    with pytest.raises(Refusal, match=told):
        require_cluster(properties, None)


def test_versions_of_an_existing_cluster_may_differ() -> None:
    require_cluster({"nodeVersion": "1.34.1-gke.1", "minMasterVersion": "1.34.1-gke.2"}, None)
    require_cluster({"nodeVersion": "1.33", "minMasterVersion": "1.34"}, {})
