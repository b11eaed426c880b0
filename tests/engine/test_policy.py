"""The rules in the real engine: that each reaches a person, and what exceptions do."""

import json
from collections.abc import Mapping
from typing import Any, override

import pulumi
import pytest
import yaml
from pulumi.automation import CommandError, EngineEvent
from pulumi.automation.events import PolicyEvent

from policy.exceptions import read_exceptions
from policy.rule import Declared, ResourceRule, Rule
from policy.rules import ALL_RULES
from sandbox import builds, programs
from sandbox.daemon import CHECKOUT
from sandbox.engine import Engine, PolicyPack
from sandbox.providers.charts import render, type_token
from sandbox.site import create
from tests.chain.stack import ignore
from tests.infra.recording import run_program, stack_values
from tests.policy.example import declared, violations
from tests.policy.examples import EXAMPLES
from tests.policy.lasting import counting

EXCEPTED = "no-keys"
"""The rule whose example is declared twice more, for exceptions."""
SETTINGS: Mapping[str, Any] = {
    EXCEPTED: {
        "exceptions": [
            {"resource": "granted.*", "reason": "An old partner.", "expires_on": counting()},
            {"resource": "expired.*", "reason": "A demonstration.", "expires_on": "2020-01-31"},
        ]
    }
}


class _Shown(pulumi.ComponentResource):
    """A resource of any type, without a provider that could refuse it before the rules see it."""

    def __init__(self, name: str, shown: Declared) -> None:
        options = pulumi.ResourceOptions(delete_before_replace=shown.delete_before_replace)
        super().__init__(shown.type, name, {**shown.properties}, options)
        self.register_outputs({**shown.properties})


class _Examples(Engine):
    """The engine on a program that declares what breaks every rule."""

    @override
    def program(self) -> None:
        for prefix, rule in (*((rule, rule) for rule in EXAMPLES), ("granted", EXCEPTED), ("expired", EXCEPTED)):
            for shown in EXAMPLES[rule].failing:
                _Shown(f"{prefix}.{shown.name}", shown)


@pytest.fixture(scope="module")
def findings(tmp_path_factory: pytest.TempPathFactory) -> list[PolicyEvent]:
    """Return the findings of one preview of all examples."""
    builds.prepare(ignore)
    folder = tmp_path_factory.mktemp("examples")
    stack_file, settings = folder / "Pulumi.examples.yaml", folder / "examples.json"
    stack_file.write_text(yaml.safe_dump({"config": {}}))
    settings.write_text(json.dumps(SETTINGS))
    events: list[EngineEvent] = []
    pack = PolicyPack(CHECKOUT / "policy", settings)
    with pytest.raises(CommandError):
        _Examples(create(folder / "site"), programs.found(), stack_file, pack).preview(events.append)
    return [event.policy_event for event in events if event.policy_event]


def _of(findings: list[PolicyEvent], rule: str, resource: str) -> list[PolicyEvent]:
    """What a rule says of the resources whose names start so."""
    return [
        told
        for told in findings
        if told.policy_name == rule and (told.resource_urn or "").rpartition("::")[2].startswith(resource)
    ]


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: rule.id)
def test_what_breaks_a_rule_reaches_a_person_with_its_fix(findings: list[PolicyEvent], rule: Rule):
    # All examples together are one plan, of which a rule on the whole may say something else.
    of_one = isinstance(rule, ResourceRule)
    told = _of(findings, rule.id, f"{rule.id}." if of_one else "")
    text = "\n".join(finding.message for finding in told)
    assert rule.title in text
    assert EXAMPLES[rule.id].says in text or not of_one
    assert f"Why: {rule.why}\nFix: {rule.fix}\nSee: {rule.link}" in text
    assert {finding.enforcement_level for finding in told} == {rule.level}


def test_a_mandatory_rule_stops_the_preview(findings: list[PolicyEvent]):
    assert any(told.enforcement_level == "mandatory" for told in findings)


def test_an_exception_silences_its_rule_and_an_expired_one_says_so(findings: list[PolicyEvent]):
    assert _of(findings, EXCEPTED, "granted.") == []
    (told,) = _of(findings, EXCEPTED, "expired.")
    assert "The exception until 2020-01-31 (A demonstration.) has expired." in told.message


def test_the_controllers_of_the_charts_keep_the_rules_but_for_what_is_granted():
    """Whether an exception still counts today is not asked: that is up to a preview."""
    builds.prepare(ignore)
    charts = run_program(stack_values("dev")).of_type("kubernetes:helm.sh/v4:Chart")
    policy = json.loads((CHECKOUT / "policy" / "stacks" / "dev.json").read_text())
    plan = [
        declared(type_token(manifest), f"{chart.name}:{manifest['metadata']['name']}", manifest)
        for chart in charts
        for manifest in render(chart.inputs, chart.name, programs.found())
    ]
    broken = [
        (rule.id, found)
        for rule in ALL_RULES
        if isinstance(rule, ResourceRule)
        for found in violations(rule, plan)
        if not any(
            exception.covers((found.urn or "").rpartition("::")[2])
            for exception in read_exceptions(policy.get(rule.id, {}))
        )
    ]
    assert plan
    assert broken == []
