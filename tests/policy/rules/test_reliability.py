import pytest

from policy.rule import Declared, StackRule
from policy.rules.reliability import RULES
from policy.values import NotKnownYetError, Unknown
from tests.policy.examples.plan import bucket, cluster, flex_start_pool, having, spot_pool, system_pool


def says(rule_id: str, *plan: Declared) -> list[str]:
    """What a rule says of a plan."""
    (rule,) = (rule for rule in RULES if rule.about.id == rule_id)
    if isinstance(rule, StackRule):
        return [fault.says for fault in rule.check(plan)]
    return [fault for found in plan if found.type in rule.types for fault in rule.check(found)]


@pytest.mark.parametrize("location", ["us-east5", "us-east5-b"])
def test_a_bucket_lies_in_the_region_of_the_slices_whether_they_name_it_or_their_zone(location: str) -> None:
    pool = having(spot_pool("slice"), ("location",), location)
    assert says("bucket-region", bucket("checkpoints"), pool) == []
    assert says("bucket-region", having(bucket("checkpoints"), ("location",), "US"), pool)


@pytest.mark.parametrize("zone", ["us-east5-b", "us-central1-ai1a"])
def test_a_zone_is_no_region_whatever_its_name(zone: str) -> None:
    assert says("regional-control-plane", having(cluster("cluster"), ("location",), zone))


def test_whether_a_cluster_will_be_protected_is_not_guessed() -> None:
    with pytest.raises(NotKnownYetError):
        says(
            "deletion-protection", having(cluster("cluster"), ("deletionProtection",), Unknown(("deletionProtection",)))
        )


def test_flex_start_alone_is_not_repaired() -> None:
    assert says("auto-repair", flex_start_pool("slice")) == []
    assert says("auto-repair", having(spot_pool("slice"), ("management", "autoRepair"), False))


def test_nodes_without_chips_may_be_upgraded_at_any_time() -> None:
    assert says("slice-not-interrupted", system_pool("system")) == []


def test_a_rule_that_deletes_below_a_folder_may_stay() -> None:
    rule = {"action": {"type": "Delete"}, "condition": {"age": 1, "matchesPrefixes": ["scratch/"]}}
    assert says("bucket-keeps-checkpoints", having(bucket("checkpoints"), ("lifecycleRules",), [rule])) == []


@pytest.mark.parametrize(("prefixes", "kept"), [(["logs/"], True), ([], False), (["logs/", ""], False)])
def test_objects_are_deleted_by_age_below_a_prefix_alone(prefixes: list[str], kept: bool) -> None:
    rule = {"action": {"type": "Delete"}, "condition": {"age": 30.0, "matchesPrefixes": prefixes}}
    assert (says("bucket-keeps-checkpoints", having(bucket("checkpoints"), ("lifecycleRules",), [rule])) == []) is kept
