"""Every rule on a plan that keeps it and on one that does not."""

import re

import pytest

from infra.stack.settings.schema import Cluster
from policy.rule import ResourceRule, Rule
from policy.rules import ALL_RULES
from tests.policy.example import violations
from tests.policy.examples import EXAMPLES

by_rule = pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.id)


@by_rule
def test_a_plan_that_keeps_the_rule_passes(rule: Rule) -> None:
    assert violations(rule, EXAMPLES[rule.id].passing) == []


@by_rule
def test_a_plan_that_breaks_the_rule_is_refused_with_the_resources_and_what_was_expected(rule: Rule) -> None:
    example = EXAMPLES[rule.id]
    found = violations(rule, example.failing)
    assert example.says in "\n".join(violation.message for violation in found)
    assert all("expected " in violation.message for violation in found)
    refused = {violation.urn for violation in found}
    assert refused <= {None, *(resource.urn for resource in example.failing)}
    if isinstance(rule, ResourceRule):
        assert refused == {resource.urn for resource in example.failing}


def test_each_id_present_or_past_is_of_one_rule() -> None:
    ids = [name for rule in ALL_RULES for name in (rule.id, *rule.replaces)]
    assert len(set(ids)) == len(ids)


def test_every_network_policy_with_unnamed_peers_is_reported() -> None:
    (rule,) = (rule for rule in ALL_RULES if rule.id == "narrow-network-policies")
    failing = EXAMPLES[rule.id].failing
    wide = {found.urn for found in failing if found.type.endswith(":NetworkPolicy")}
    assert {found.urn for found in violations(rule, failing)} == wide
    assert len(wide) == 11


def test_the_remedy_of_an_unprotected_cluster_names_all_that_a_stack_file_without_the_section_needs() -> None:
    (rule,) = (rule for rule in ALL_RULES if rule.id == "deletion-protection")
    required = {name for name, field in Cluster.model_fields.items() if field.is_required()}
    assert required | {"cluster", "deletion_protection"} <= set(re.findall(r"`(\w+)", rule.fix))
