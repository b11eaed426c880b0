import pytest

from tests.policy.example import declared, says
from tests.policy.examples.plan import bucket, having, spot_pool


@pytest.mark.parametrize("kind", ["Network", "RegionNetwork", ""], ids=["network", "region", "organization"])
@pytest.mark.parametrize("match", [{"srcIpRanges": ["0.0.0.0/0"]}, {"layer4Configs": [{"ipProtocol": "all"}]}])
def test_a_rule_of_a_firewall_policy_does_not_let_everyone_in(kind: str, match: dict[str, object]) -> None:
    name = f"{kind}FirewallPolicyRule"
    token = f"gcp:compute/{name[0].lower()}{name[1:]}:{name}"
    properties = {"direction": "INGRESS", "action": "allow", "match": match}
    known = {**properties, "match": {"srcIpRanges": ["10.0.0.0/8"]}}
    assert says("no-open-firewall", declared(token, "rule", properties))
    assert says("no-open-firewall", declared(token, "rule", {**properties, "direction": "EGRESS"})) == []
    assert says("no-open-firewall", declared(token, "rule", known)) == []


@pytest.mark.parametrize("location", ["us-east5", "us-east5-b"])
def test_a_bucket_is_in_the_region_of_the_slices_if_they_name_it_or_their_zone(location: str) -> None:
    pool = having(spot_pool("slice"), "location", location)
    assert says("bucket-region", bucket("checkpoints"), pool) == []
    assert says("bucket-region", having(bucket("checkpoints"), "location", "US"), pool)


@pytest.mark.parametrize(("prefixes", "kept"), [(["logs/"], True), ([], False), (["logs/", ""], False)])
def test_objects_are_deleted_by_age_only_below_a_prefix(prefixes: list[str], kept: bool) -> None:
    rule = {"action": {"type": "Delete"}, "condition": {"age": 30.0, "matchesPrefixes": prefixes}}
    found = says("bucket-keeps-checkpoints", having(bucket("checkpoints"), "lifecycleRules", [rule]))
    assert (found == []) is kept
