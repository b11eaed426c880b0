"""Test the user's own Pulumi, with a program that records its arguments in its place, and the reading of events.

The recorded events are from a first preview that breaks rules, and from slices that become spot.
"""

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from pulumi.automation import CommandError, EngineEvent

from cli import engines
from cli.answer import Halt
from cli.engines import PulumiEngine
from sandbox.daemon import CHECKOUT
from sandbox.engine import PolicyPack

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
    counted = Counter(change.operation for change in engines.changes(events))
    assert counted == summary.resource_changes
    assert engines.unchanged(events) == 0


def test_a_replacement_is_one_change_with_the_inputs_that_cause_it() -> None:
    changes = engines.changes(recorded("to-spot"))
    assert {(change.operation, change.name, change.properties) for change in changes} == {
        ("update", "ground", ("input",)),
        ("update", "quota-research", ("spec.resourceGroups[0].flavors[0].name",)),
        ("replace", "footing", ("input",)),
        ("replace", "flavor-trillium", ("metadata.name",)),
        ("replace", "slices-trillium-0", ("nodeConfig.spot",)),
        ("replace", "slices-trillium-1", ("nodeConfig.spot",)),
        ("replace", "training", ()),
    }
    assert engines.unchanged(recorded("to-spot")) > 100


def test_broken_rules_have_their_severity_and_mandatory_ones_come_first() -> None:
    found = engines.findings(recorded("refused"), {"bucket-versions": "high", "few-resources": "low"})
    assert [(each.rule, each.level, each.severity, each.resource) for each in found] == [
        ("bucket-versions", "mandatory", "high", "checkpoints"),
        ("pool-names", "advisory", "unknown", "cluster-system"),
        ("pool-names", "advisory", "unknown", "slices-trillium-0"),
        ("pool-names", "advisory", "unknown", "slices-trillium-1"),
        ("few-resources", "advisory", "low", None),
    ]
    assert found[0].message.startswith("Title of bucket-versions\nexpected versioning, got none\nWhy: ")


def test_an_error_names_its_resource_and_appears_once_without_colours_and_tracebacks() -> None:
    events = [
        error("<{%fg 1%}>no quota<{%reset%}>\n", "urn:pulumi:dev::p::gcp:container/cluster:Cluster::cluster"),
        error("no job may run\nTraceback (most recent call last)\n  File"),
        error("no job may run\nTraceback (most recent call last)\n  File"),
        error("expected resource operations for urn:pulumi:dev::p::t::later but none were seen"),
        error("update failed\n"),
    ]
    assert engines.errors(events) == ("cluster: no quota", "no job may run")


RECORDER = """#!/usr/bin/env python3
import json, os, sys
words = [word for word in sys.argv[1:] if word != "--non-interactive"]
if words == ["version"]:
    print("v3.259.0")
elif words[0] == "stack" and "unknown" in words:
    sys.exit("error: no stack named 'unknown' found")
else:
    with open(os.environ["CALLS"], "a") as calls:
        calls.write(json.dumps({"words": words, "folder": os.getcwd()}) + "\\n")
    if words[0] != "stack":
        sys.exit("error: recorded")
"""
PACK = PolicyPack(Path("/rules"), Path("/rules/dev.json"))


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "pulumi"
    program.write_text(RECORDER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def ignore(_: object) -> None:
    """Takes an engine event."""


def read_output(calls: Path) -> list[list[str]]:
    lines = [json.loads(line) for line in calls.read_text().splitlines()]
    assert {line["folder"] for line in lines} == {str(CHECKOUT)}
    return [line["words"] for line in lines]


def test_a_preview_is_held_to_the_rules_and_writes_its_plan(calls: Path) -> None:
    with pytest.raises(CommandError, match="recorded"):
        PulumiEngine("dev", PACK).preview(ignore, Path("/plans/dev.json"))
    looked, planned = read_output(calls)
    assert looked == ["stack", "--stack", "dev"], "the stack that is selected stays so"
    assert planned[0] == "preview"
    pairs = set(zip(planned, planned[1:], strict=False))
    assert {
        ("--policy-pack", "/rules"),
        ("--policy-pack-config", "/rules/dev.json"),
        ("--save-plan", "/plans/dev.json"),
        ("--stack", "dev"),
        ("--exec-kind", "auto.local"),
    } <= pairs


def test_drift_is_looked_for_without_a_change_of_the_state(calls: Path) -> None:
    with pytest.raises(CommandError, match="recorded"):
        PulumiEngine("dev").preview_after_refresh(ignore)
    looked = read_output(calls)[-1]
    assert looked[0] == "preview"
    assert "--refresh" in looked


def test_a_stack_is_never_made_by_looking_at_it(calls: Path) -> None:
    with pytest.raises(Halt, match=r"got 'unknown'; create it with `pulumi stack init unknown`"):
        PulumiEngine("unknown").preview(ignore)
    assert not calls.exists()


@pytest.mark.parametrize(
    ("program", "got"),
    [
        ("#!/bin/sh\nexit 126\n", "one"),
        ("#!/bin/sh\necho no version is set\n", "one"),
        ("#!/bin/sh\necho v2.0.0\n", "one"),
        ("nothing", "one"),
        (None, "none"),
    ],
)
def test_a_pulumi_that_does_not_run_is_reported_with_what_to_install(
    program: str | None, got: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH'] if program else '/nowhere'}")
    if program:
        (tmp_path / "pulumi").write_text(program)
        (tmp_path / "pulumi").chmod(0o755)
    with pytest.raises(Halt, match=f"needs the program `pulumi` on PATH, got {got}"):
        PulumiEngine("dev").preview(ignore)
