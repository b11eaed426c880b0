"""Events as the engine told them: of a first preview that breaks rules, and of slices that become spot."""

import json
from collections import Counter
from pathlib import Path

from pulumi.automation import EngineEvent

from cli import engine_events

RECORDED = Path(__file__).parent / "events"


def recorded(name: str) -> list[EngineEvent]:
    return [EngineEvent.from_json(json.loads(line)) for line in (RECORDED / f"{name}.jsonl").read_text().splitlines()]


def error(message: str, urn: str | None = None) -> EngineEvent:
    return EngineEvent.from_json(
        {"diagnosticEvent": {"message": message, "color": "never", "severity": "error", "urn": urn}}
    )


def test_changes_are_those_that_the_engine_counts() -> None:
    events = recorded("refused")
    (summary,) = (event.summary_event for event in events if event.summary_event)
    counted = Counter(change.operation for change in engine_events.changes(events))
    assert counted == summary.resource_changes
    assert engine_events.unchanged(events) == 0


def test_a_replacement_is_one_change_with_the_inputs_that_cause_it() -> None:
    changes = engine_events.changes(recorded("to-spot"))
    assert {(change.operation, change.name, change.properties) for change in changes} == {
        ("update", "ground", ("input",)),
        ("update", "quota-research", ("spec.resourceGroups[0].flavors[0].name",)),
        ("replace", "footing", ("input",)),
        ("replace", "flavor-trillium", ("metadata.name",)),
        ("replace", "slices-trillium-0", ("nodeConfig.spot",)),
        ("replace", "slices-trillium-1", ("nodeConfig.spot",)),
        ("replace", "training", ()),
    }
    assert engine_events.unchanged(recorded("to-spot")) > 100


def test_broken_rules_stand_with_their_severity_the_mandatory_ones_first() -> None:
    found = engine_events.findings(recorded("refused"), {"bucket-versions": "high", "few-resources": "low"})
    assert [(each.rule, each.level, each.severity, each.resource) for each in found] == [
        ("bucket-versions", "mandatory", "high", "checkpoints"),
        ("pool-names", "advisory", "unknown", "cluster-system"),
        ("pool-names", "advisory", "unknown", "slices-trillium-0"),
        ("pool-names", "advisory", "unknown", "slices-trillium-1"),
        ("few-resources", "advisory", "low", None),
    ]
    assert found[0].message.startswith("Title of bucket-versions\nexpected versioning, got none\nWhy: ")


def test_that_rules_are_broken_is_no_error_and_neither_is_how_plugins_end() -> None:
    events = recorded("refused")
    assert any(event.diagnostic_event and "exited prematurely" in event.diagnostic_event.message for event in events)
    assert engine_events.errors(events) == ()


def test_an_error_names_its_resource_and_stands_once_without_colours_and_tracebacks() -> None:
    events = [
        error("<{%fg 1%}>no quota<{%reset%}>\n", "urn:pulumi:dev::p::gcp:container/cluster:Cluster::cluster"),
        error("no job may run\nTraceback (most recent call last)\n  File"),
        error("no job may run\nTraceback (most recent call last)\n  File"),
        error("expected resource operations for urn:pulumi:dev::p::t::later but none were seen"),
        error("update failed\n"),
    ]
    assert engine_events.errors(events) == ("cluster: no quota", "no job may run")
