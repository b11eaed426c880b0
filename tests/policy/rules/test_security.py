import pytest

from policy.rules.security import RULES
from tests.policy.example import declared, faults

(NO_OPEN_FIREWALL,) = (rule for rule in RULES if rule.about.id == "no-open-firewall")


@pytest.mark.parametrize("kind", ["Network", "RegionNetwork", ""], ids=["network", "region", "organization"])
@pytest.mark.parametrize("match", [{"srcIpRanges": ["0.0.0.0/0"]}, {"layer4Configs": [{"ipProtocol": "all"}]}])
def test_a_rule_of_a_firewall_policy_lets_not_everyone_in_either(kind: str, match: dict[str, object]) -> None:
    name = f"{kind}FirewallPolicyRule"
    token = f"gcp:compute/{name[0].lower()}{name[1:]}:{name}"
    properties = {"direction": "INGRESS", "action": "allow", "match": match}
    assert faults(NO_OPEN_FIREWALL, [declared(token, "rule", properties)])
    assert not faults(NO_OPEN_FIREWALL, [declared(token, "rule", {**properties, "direction": "EGRESS"})])
    assert not faults(
        NO_OPEN_FIREWALL, [declared(token, "rule", {**properties, "match": {"srcIpRanges": ["10.0.0.0/8"]}})]
    )
