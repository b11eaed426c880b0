"""The command lines in the documents are command lines of the program."""

import re
import shlex

import pytest
from typer.testing import CliRunner

from chaos.__main__ import parser
from chaos.faults import CATALOGUE
from cli.multislice import app
from tests.documents.command_lines import command_lines, command_of

LINES = command_lines()
MULTISLICE = [line for line in LINES if re.match("multislice [a-z]", line)]
CHAOS = [line for line in LINES if re.match(r"make chaos\b|\.venv/bin/python -m chaos\b", line)]


@pytest.mark.parametrize("line", MULTISLICE)
def test_a_command_line_of_multislice_is_one(line: str) -> None:
    command_of(app, shlex.split(line.partition(" [")[0])[1:], only_named=True)


@pytest.mark.parametrize("line", CHAOS)
def test_a_command_line_of_chaos_is_one_and_names_faults_of_the_catalogue(line: str) -> None:
    arguments = [word.removeprefix("ARGS=") for word in shlex.split(line)]
    given = shlex.split(" ".join(arguments[2:] if line.startswith("make") else arguments[3:]))
    assert set(parser().parse_args(given).faults) <= {fault.name for fault in CATALOGUE}


def test_the_review_of_the_first_page_runs_offline() -> None:
    line = "multislice review -s dev"
    assert line in LINES
    answer = CliRunner().invoke(app, shlex.split(line)[1:])
    # The example's project and image are for the reader to replace.
    assert answer.exit_code == 2
    assert "Verdict  NO: `up` refuses this stack: correct cloud.project" in answer.output
