"""The rules, tests and security context that docs/explanation/security.md names are those of the program."""

import re

import pytest
import yaml

from infra.stack.pods import CONFINED_CONTAINER, CONFINED_POD
from infra.stack.programs import PATHWAYS_PORTS, TPU_METRICS_PORT
from policy.rules import ALL_RULES
from tests.documents.pages import DOCS, ROOT, blocks
from workloads.spec import METRICS_PORT
from workloads.training.runtime import coordinator_port

TEXT = (DOCS / "explanation" / "security.md").read_text()
ATTACKS = re.findall(r"^\| (?!Attack|-)([^|]+) \| [^|]+ \| ([^|]+) \|$", TEXT.split("## Known gaps")[0], re.MULTILINE)
RULES = {rule.id for rule in ALL_RULES}


@pytest.mark.parametrize("named", sorted(set(re.findall("`([^`]+)`", " ".join(shown for _, shown in ATTACKS)))))
def test_what_stops_an_attack_is_a_rule_of_the_plan_or_has_tests(named: str) -> None:
    assert (ROOT / named).is_file() if named.startswith("tests/") else named in RULES


def test_what_a_member_is_told_to_write_is_what_the_trainer_has() -> None:
    (shown,) = blocks(TEXT, "yaml")
    containers = [{"securityContext": CONFINED_CONTAINER}]
    assert yaml.safe_load(shown) == {"securityContext": CONFINED_POD, "containers": containers}


def test_the_ports_that_the_page_names_are_those_of_the_program() -> None:
    named = set(map(int, re.findall(r"\b\d{4,5}\b", TEXT.split("## Open ports")[1].split("## Known gaps")[0])))
    assert named >= {METRICS_PORT, TPU_METRICS_PORT, int(coordinator_port), min(PATHWAYS_PORTS), max(PATHWAYS_PORTS)}
