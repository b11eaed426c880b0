import pytest

from policy.rule import Rule
from policy.rules.security import RULES
from tests.policy.example import declared, faults
from tests.policy.examples import EXAMPLES

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


def _by_id(rule: str) -> Rule:
    (found,) = (known for known in RULES if known.about.id == rule)
    return found


@pytest.mark.parametrize(
    ("rule", "setting", "value"),
    [("no-root", "runAsNonRoot", True), ("confined-pods", "seccompProfile", {"type": "RuntimeDefault"})],
)
def test_what_a_container_says_counts_for_it_and_what_its_pod_says_for_those_that_say_nothing(
    rule: str, setting: str, value: object
) -> None:
    said = {"securityContext": {setting: value}}
    for pod, first, second, broken in (
        ({}, {}, {}, 2),
        ({}, said, {}, 1),
        (said, {}, {}, 0),
        ({}, said, said, 0),
    ):
        containers = [{"name": "first", **first}, {"name": "second", **second}]
        spec = {**pod, "containers": containers}
        assert len(faults(_by_id(rule), [declared("kubernetes:core/v1:Pod", "pod", {"spec": spec})])) == broken


def test_every_policy_that_lets_in_whom_it_does_not_name_is_told() -> None:
    rule = _by_id("narrow-network-policies")
    example = EXAMPLES[rule.about.id]
    wide = {found.urn for found in example.failing if found.type.endswith(":NetworkPolicy")}
    assert {fault.urn for fault in faults(rule, example.failing)} == wide
    assert len(wide) == 11
