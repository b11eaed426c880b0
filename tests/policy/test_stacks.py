"""The plans of this repository keep the rules, but for what their policy files grant."""

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from policy.exceptions import ENDING, MAX_LIFETIME, file_errors, longest, read_exceptions
from policy.rules import ALL_RULES
from tests.infra.legal_values import legal_values
from tests.infra.recording import ROOT, Values, run_program, scale_values, stack_values, values_of
from tests.infra.stack.test_pathways import on_one_host, stack_with
from tests.policy.example import violations
from tests.policy.plans import plan_of

STACK_FILES = sorted((ROOT / "stacks").glob("Pulumi.*.yaml"))
POLICY_FILES = sorted((ROOT / "policy" / "stacks").glob("*.json"))
GRANTED_ON = date(2026, 12, 1)
"""The day of the last review of the exceptions. All of them count on it, whatever the date is today."""
CHOICES = {"job-ends", "on-demand-chips"}
"""Rules on choices that a stack may make, with an exception."""


def policy_of(stack: str) -> Values:
    return json.loads((ROOT / "policy" / "stacks" / f"{stack}.json").read_text())


def broken(values: Values, policy: Values, *, preview: bool) -> list[tuple[str, str]]:
    """Return rule and message of every violation that no exception covers."""
    plan = plan_of(run_program(values, preview=preview))
    return [
        (rule.id, found.message)
        for rule in ALL_RULES
        for found in violations(rule, plan)
        if not longest(read_exceptions(policy.get(rule.id, {})), (found.urn or "").rpartition("::")[2], GRANTED_ON)
    ]


def test_every_stack_has_its_policy_file() -> None:
    assert [path.stem for path in POLICY_FILES] == [path.stem.removeprefix("Pulumi.") for path in STACK_FILES]


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
@pytest.mark.parametrize("stack_file", STACK_FILES, ids=lambda path: path.stem)
def test_every_stack_keeps_the_rules_and_each_can_be_asked(stack_file: Path, preview: bool) -> None:
    policy = policy_of(stack_file.stem.removeprefix("Pulumi."))
    assert broken(values_of(stack_file), policy, preview=preview) == []


def test_a_stack_of_two_teams_keeps_the_rules(two_teams: Values) -> None:
    assert broken(two_teams, policy_of("dev"), preview=False) == []


def test_the_largest_stack_keeps_all_rules_except_those_against_its_host_network() -> None:
    found = broken(scale_values(), policy_of("prod"), preview=True)
    assert {rule for rule, _ in found} == {"no-host-namespaces", "pod-security"}


@pytest.mark.parametrize("made", [stack_with, on_one_host])
def test_a_job_that_runs_by_pathways_keeps_the_rules(made: Callable[[Values], Values]) -> None:
    assert broken(made(stack_values("dev")), policy_of("dev"), preview=False) == []


@pytest.mark.costs(cpu_seconds=12)
@settings(max_examples=8, deadline=None, suppress_health_check=(HealthCheck.too_slow,))
@given(legal_values())
def test_whatever_a_stack_file_may_say_keeps_the_rules(values: Values) -> None:
    found = broken(values, policy_of("dev"), preview=False)
    assert [entry for entry in found if entry[0] not in CHOICES] == []


@pytest.mark.parametrize("path", POLICY_FILES, ids=lambda path: path.stem)
def test_a_policy_file_names_rules_that_there_are_and_no_exception_that_ends_soon_stops_a_preview(path: Path) -> None:
    rules = json.loads(path.read_text())
    assert list(file_errors(rules, (ENDING, *ALL_RULES))) == []
    levels = {name: rules.get(name, {}).get("enforcementLevel") for name in ("all", ENDING.id)}
    assert (levels[ENDING.id] or levels["all"] or ENDING.level) == "advisory"


@pytest.mark.parametrize("path", POLICY_FILES, ids=lambda path: path.stem)
def test_every_exception_has_a_reason_and_an_end_and_is_for_something_that_is_declared(path: Path) -> None:
    plan = plan_of(run_program(values_of(ROOT / "stacks" / f"Pulumi.{path.stem}.yaml")))
    names = {resource.name for resource in plan}
    names |= {f"{chart.name}:" for chart in plan if chart.type.endswith(":Chart")}
    for rule in json.loads(path.read_text()).values():
        for exception in read_exceptions(rule):
            assert any(exception.covers(name) for name in names), exception
            assert exception.reason.endswith(".")
            assert exception.expires_on - GRANTED_ON <= MAX_LIFETIME, exception
