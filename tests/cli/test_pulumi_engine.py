"""What is told to the user's own Pulumi. A program that writes down its arguments stands in for it."""

import json
import os
from pathlib import Path

import pytest
from pulumi.automation import CommandError

from cli.halt import Halt
from cli.pulumi_engine import PulumiEngine
from sandbox.daemon import CHECKOUT
from sandbox.engine import PolicyPack

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


def told(calls: Path) -> list[list[str]]:
    lines = [json.loads(line) for line in calls.read_text().splitlines()]
    assert {line["folder"] for line in lines} == {str(CHECKOUT)}
    return [line["words"] for line in lines]


def test_a_preview_is_held_to_the_rules_and_writes_its_plan(calls: Path) -> None:
    with pytest.raises(CommandError, match="recorded"):
        PulumiEngine("dev", PACK).preview(ignore, Path("/plans/dev.json"))
    looked, planned = told(calls)
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
    looked = told(calls)[-1]
    assert looked[0] == "preview"
    assert "--refresh" in looked


def test_a_stack_is_never_made_by_looking_at_it(calls: Path) -> None:
    with pytest.raises(Halt, match=r"got 'unknown'; make it, pulumi stack init unknown"):
        PulumiEngine("unknown").preview(ignore)
    assert not calls.exists()


@pytest.mark.parametrize(
    "program", ["#!/bin/sh\nexit 126\n", "#!/bin/sh\necho no version is set\n", "#!/bin/sh\necho v2.0.0\n", "nothing"]
)
def test_a_pulumi_that_does_not_run_is_told_with_what_to_install(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "pulumi"
    broken.write_text(program)
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(Halt, match="needs the program `pulumi` on PATH, got one"):
        PulumiEngine("dev").preview(ignore)


def test_without_pulumi_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Halt, match="needs the program `pulumi` on PATH"):
        PulumiEngine("dev").preview(ignore)
