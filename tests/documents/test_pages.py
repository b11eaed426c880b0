"""What the documents name exists: commands, files, links and figures' sources."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from infra.review.answers import answers
from infra.review.review import Known, review
from infra.review.table import as_text
from infra.stack.settings.read import read_values
from policy.exceptions import read_exceptions
from policy.pack import finding
from policy.rules import ALL_RULES
from tests.documents.command_line_reference import targets
from tests.documents.pages import PAGES, ROOT, anchors, blocks, name_of, without_blocks
from tests.infra.review.known import NOW
from tests.policy.example import violations
from tests.policy.examples import EXAMPLES

TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
OUTSIDE = ("JOB/", "teams/", "roles/", "make ", "pulumi ", "kubectl", "gs://", "google.com/", "kill ", "sysctl ")


@pytest.mark.parametrize("document", PAGES, ids=name_of)
def test_every_make_target_that_is_named_exists(document: Path):
    named = set(re.findall(r"\bmake ([a-z]+(?:-[a-z]+)*)\b", document.read_text()))
    assert named <= TARGETS | {"and"}


@pytest.mark.parametrize("document", PAGES, ids=name_of)
def test_every_link_leads_somewhere(document: Path):
    links = re.findall(r"\]\(([^)]+)\)", without_blocks(document.read_text()))
    assert [link for link in links if not link.startswith("http") and not leads_somewhere(document, link)] == []


def leads_somewhere(document: Path, link: str) -> bool:
    """There is such a file, and such a heading in it."""
    path, _, place = link.partition("#")
    page = document.parent / path if path else document
    return page.exists() and (not place or place in anchors(page.read_text()))


@pytest.mark.parametrize("document", PAGES, ids=name_of)
def test_every_file_that_is_named_exists(document: Path):
    words = re.findall(r"`([A-Za-z_.]+/[\w./*-]*|[\w-]+\.(?:py|md|yaml))`", document.read_text())
    named = [word for word in words if not word.startswith((*OUTSIDE, "."))]
    assert [word for word in named if not (list(ROOT.glob(word)) or list(document.parent.glob(word)))] == []


def test_make_without_a_target_lists_all_of_them() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    expected = {target.words: target.about for target in targets()}
    assert dict(re.split(r"(?<=\S)  +", line, maxsplit=1) for line in shown.splitlines()) == expected


def test_make_train_needs_no_programs():
    planned = subprocess.run(["make", "-n", "train"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "cli.train" in planned.stdout
    assert "cli.programs" not in planned.stdout


def test_the_readme_shows_what_a_review_answers_about_its_stack_file() -> None:
    text = (ROOT / "README.md").read_text()
    ([stack], [shown]) = (blocks(text, language) for language in ("yaml", "text"))
    values = {key.partition(":")[2]: value for key, value in yaml.safe_load(stack)["config"].items()}
    found = review("mine", read_values(values, "mine"), Known(NOW, preflights={}, deployed=None, workloads=None))
    assert shown == f"{as_text(answers(found))}\n"


def test_the_finding_and_the_settings_that_are_shown_are_real() -> None:
    text = (ROOT / "docs" / "reference" / "policy.md").read_text()
    shown = next(block for block in blocks(text, "") if "Why:" in block)
    (rule,) = (rule for rule in ALL_RULES if rule.id == "no-keys")
    (found,) = violations(rule, EXAMPLES["no-keys"].failing)
    assert shown == f"{rule.title}\n{finding(rule, found.message, [])}\n"
    (settings,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    rules = json.loads(settings)
    assert read_exceptions(rules.pop("no-host-namespaces"))[0].covers("job-pretrain")
    assert rules == {"all": {"enforcementLevel": "mandatory"}}
