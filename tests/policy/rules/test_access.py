from policy.rules.access import RULES
from tests.policy.example import violations
from tests.policy.examples import EXAMPLES


def test_every_policy_with_unnamed_peers_is_reported() -> None:
    (rule,) = (rule for rule in RULES if rule.id == "narrow-network-policies")
    failing = EXAMPLES[rule.id].failing
    wide = {found.urn for found in failing if found.type.endswith(":NetworkPolicy")}
    assert {found.urn for found in violations(rule, failing)} == wide
    assert len(wide) == 11
