"""Every rule on a plan that keeps it and on one that does not."""

import pytest

from policy.rule import ResourceRule, Rule
from policy.rules import ALL_RULES
from tests.policy.example import faults
from tests.policy.examples import EXAMPLES

by_rule = pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.about.id)


@by_rule
def test_a_plan_that_keeps_the_rule_passes(rule: Rule) -> None:
    assert faults(rule, EXAMPLES[rule.about.id].passing) == []


@by_rule
def test_a_plan_that_breaks_the_rule_is_told_where_and_how(rule: Rule) -> None:
    example = EXAMPLES[rule.about.id]
    found = faults(rule, example.failing)
    assert example.says in "\n".join(fault.says for fault in found)
    told = {fault.urn for fault in found}
    assert told <= {None, *(resource.urn for resource in example.failing)}
    if isinstance(rule, ResourceRule):
        assert told == {resource.urn for resource in example.failing}


@by_rule
def test_a_rule_says_what_got_why_and_what_to_do(rule: Rule) -> None:
    about = rule.about
    assert all("expected " in fault.says for fault in faults(rule, EXAMPLES[about.id].failing))
    assert about.why.endswith(".")
    assert about.fix.endswith(".")
    assert about.link.startswith("https://")
    assert not about.title.endswith(".")


def test_no_two_rules_have_one_id() -> None:
    assert len({rule.about.id for rule in ALL_RULES}) == len(ALL_RULES)
