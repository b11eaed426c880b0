"""What the documents name exists: commands, files, links and figures' sources."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from policy.exceptions import granted
from policy.pack import finding
from policy.rules import ALL_RULES
from tests.policy.example import faults
from tests.policy.examples import EXAMPLES
from tests.policy_reference import with_table
from tests.settings_reference import reference
from workloads.spec import BAD_HOST_CHARACTERS, BAD_HOST_KEY, ExitCode

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "sandbox" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
OUTSIDE = ("JOB/", "roles/", "make ", "pulumi ", "kubectl", "gs://", "google.com/", "kill ", "sysctl ")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_make_target_that_is_named_exists(document: Path):
    named = set(re.findall(r"\bmake ([a-z]+)\b", document.read_text()))
    assert named <= TARGETS | {"and"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(document: Path):
    links = re.findall(r"\]\(([^)#]+)\)", document.read_text())
    assert [link for link in links if not link.startswith("http") and not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_is_named_exists(document: Path):
    words = re.findall(r"`([A-Za-z_.]+/[\w./*-]*|[\w-]+\.(?:py|md|yaml))`", document.read_text())
    named = [word for word in words if not word.startswith((*OUTSIDE, "."))]
    assert [word for word in named if not (list(ROOT.glob(word)) or list(document.parent.glob(word)))] == []


def test_make_without_a_target_does_nothing_that_costs():
    planned = subprocess.run(["make", "-n", "train"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "cli.train" in planned.stdout
    assert "cli.programs" not in planned.stdout


def test_marks_and_codes_that_operators_look_for_are_those_of_the_trainer() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    assert f"`{BAD_HOST_KEY}:NoSchedule`" in text
    assert f"kubectl taint nodes NODE {BAD_HOST_KEY}-\n" in text
    assert f"annotation, of {BAD_HOST_CHARACTERS} characters at most" in text
    sections = {
        "A bad host": "BAD_HOST",
        "Slices that disagree": "SILENT_DAMAGE",
        "Two jobs on one path": "INVALID_SPEC",
    }
    for section, code in sections.items():
        body = text.partition(f"## {section}\n")[2].partition("\n## ")[0]
        assert f"exit code {ExitCode[code]:d}" in body


def test_the_reference_of_the_stack_file_is_what_its_classes_say() -> None:
    written = ROOT / "docs" / "stack-file.md"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        written.write_text(reference())
    assert written.read_text() == reference()


def test_the_table_of_rules_is_what_the_rules_say() -> None:
    written = ROOT / "docs" / "policy.md"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        written.write_text(with_table(written.read_text()))
    assert written.read_text() == with_table(written.read_text())


def test_the_finding_and_the_settings_that_are_shown_are_real() -> None:
    text = (ROOT / "docs" / "policy.md").read_text()
    shown = next(block for block in re.findall(r"```\n(.*?)```", text, re.DOTALL) if "Why:" in block)
    (rule,) = (rule for rule in ALL_RULES if rule.about.id == "no-keys")
    (fault,) = faults(rule, EXAMPLES["no-keys"].failing)
    assert shown == f"{rule.about.title}\n{finding(rule.about, fault, [])}\n"
    (settings,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    rules = json.loads(settings)
    assert granted(rules.pop("no-host-namespaces"))[0].covers("job-pretrain")
    assert rules == {"all": {"enforcementLevel": "mandatory"}}
