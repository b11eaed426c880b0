"""Every border that docs/security.md draws is shown by a test or a rule that there is."""

import ast
import re
from pathlib import Path

import pytest
import yaml

from infra.pods import CONFINED_CONTAINER, CONFINED_POD
from policy.rules import ALL_RULES

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "security.md").read_text()
BORDERS = re.findall(r"^\| (?!border|-)([^|]+) \| [^|]+ \| ([^|]+) \|$", TEXT.split("## Signing in")[0], re.MULTILINE)


def test_there_are_borders() -> None:
    assert len(BORDERS) > 20


@pytest.mark.parametrize(("border", "shown_by"), BORDERS)
def test_what_shows_a_border_exists(border: str, shown_by: str) -> None:
    named = re.findall(r"`([^`]+)`", shown_by)
    assert named
    assert [name for name in named if not _exists(name)] == []


def test_what_a_member_is_told_to_write_is_what_the_trainer_has() -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    assert yaml.safe_load(shown) == {
        "securityContext": CONFINED_POD,
        "containers": [{"securityContext": CONFINED_CONTAINER}],
    }


def test_rules_that_are_named_elsewhere_exist() -> None:
    told = TEXT.split("## What is left open")[1]
    named = re.findall(r"`(no-[a-z-]+|encrypted-secrets|signed-images|pod-security)`", told)
    assert named
    assert set(named) <= {rule.about.id for rule in ALL_RULES}


def _exists(name: str) -> bool:
    path, _, test = name.partition("::")
    if not path.startswith("tests/"):
        return name in {rule.about.id for rule in ALL_RULES}
    module = ast.parse((ROOT / path).read_text())
    defined = {node.name for node in module.body if isinstance(node, ast.FunctionDef)}
    return test in defined if test else any(function.startswith("test_") for function in defined)
