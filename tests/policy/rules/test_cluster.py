from policy.rule import Unknown
from tests.policy.example import says
from tests.policy.examples.plan import flex_start_pool, having, spot_pool, system_pool


def test_the_account_of_nodes_may_still_have_to_be_made() -> None:
    assert says("node-account", having(system_pool("pool"), "nodeConfig.serviceAccount", Unknown(("email",)))) == []


def test_only_flex_start_is_not_repaired() -> None:
    assert says("auto-repair", flex_start_pool("slice")) == []
    assert says("auto-repair", having(spot_pool("slice"), "management.autoRepair", False))


def test_cpus_are_counted_in_every_zone_and_in_machines_of_any_size() -> None:
    pool = having(system_pool("cluster"), "nodeConfig.machineType", "n2-custom-16-32768")
    assert says("system-nodes", pool) == []
    (message,) = says("system-nodes", having(pool, "nodeLocations", ["us-east5-a", "us-east5-b", "us-east5-c"]))
    assert message.endswith("got 96")
