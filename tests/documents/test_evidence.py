"""Every command line in the documents is run by a test, or it is told why none can."""

import re
import shlex
import subprocess
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cli.multislice import app
from tests.documents.command_lines import command_lines
from tests.documents.evidence import EVIDENCE, NotHere, RunBy, evidence_for
from tests.documents.named_tests import reached_from, source_of
from tests.documents.pages import ROOT

LINES = command_lines()
TESTS = [each if isinstance(each, RunBy) else each.instead for each in EVIDENCE.values()]
MULTISLICE = [line for line in LINES if re.match("(bin/)?multislice [a-z]", line)]
EVERYWHERE = {"-s", "--stack", "--engine", "--sandbox"}
"""Options that say which stack, for all commands alike."""


def test_there_are_command_lines() -> None:
    assert len(LINES) > 50


@pytest.mark.parametrize("line", LINES)
def test_a_command_line_has_evidence(line: str) -> None:
    assert evidence_for(line), f"{line} in {', '.join(LINES[line])}: name the test that runs it in evidence.py"


def test_there_is_no_evidence_of_what_no_document_says_any_more() -> None:
    assert set(EVIDENCE) - {evidence_for(line)[0] for line in LINES if evidence_for(line)} == set()


@pytest.mark.parametrize("named", [each for each in TESTS if each], ids=lambda each: each.test)
def test_the_test_exists_and_runs_what_it_is_named_for(named: RunBy) -> None:
    assert source_of(named.test) is not None
    assert named.says in reached_from(named.test)


@pytest.mark.parametrize("line", MULTISLICE)
def test_the_options_that_a_command_line_shows_are_given_by_its_test(line: str) -> None:
    named = EVIDENCE[evidence_for(line)[0]]
    test = named if isinstance(named, RunBy) else named.instead
    assert test
    options = {word.strip("[]") for word in shlex.split(line) if word.strip("[]").startswith("-")}
    assert [option for option in options - EVERYWHERE if f'"{option}"' not in reached_from(test.test)] == []


def test_a_word_that_stands_elsewhere_in_the_module_is_no_evidence() -> None:
    reached = reached_from("tests/documents/test_evidence.py::test_there_are_command_lines")
    assert "len(LINES)" in reached
    assert "command_lines()" in reached
    assert "invoke(" not in reached
    assert "test_there_are" not in reached


def test_what_no_test_runs_says_why() -> None:
    assert all(each.reason for each in EVIDENCE.values() if isinstance(each, NotHere))


@pytest.mark.parametrize("line", MULTISLICE)
def test_a_command_line_of_multislice_is_one(line: str) -> None:
    words = shlex.split(line.partition(" [")[0])[1:]
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    # A sentence may name a command without what it needs.
    assert (line.startswith("multislice ") and not words) or command.make_context(command.name, words)


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("make ")])
def test_a_command_line_of_make_is_one(line: str) -> None:
    assert subprocess.run(shlex.split(f"{line} --dry-run"), cwd=ROOT, capture_output=True, check=False).returncode == 0


def test_the_review_of_the_first_page_runs_offline() -> None:
    line = "bin/multislice review -s dev"
    assert line in LINES
    answer = CliRunner().invoke(app, shlex.split(line)[1:])
    assert answer.exit_code == 0, answer.output


@pytest.mark.parametrize("line", ["make nothing", "python -m cli.nothing", "gcl", "multislice lists"])
def test_a_line_that_nobody_has_tried_would_be_found(line: str) -> None:
    assert not evidence_for(line)
