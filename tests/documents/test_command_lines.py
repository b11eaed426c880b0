"""The command lines in the documents are command lines of the program."""

import re
import shlex

import pytest

from cli.main import app
from tests.documents.command_lines import command_lines, command_of
from tests.faults.catalogue import CATALOGUE
from tests.faults.long_run import parser

LINES = command_lines()
MULTISLICE = [part for line in LINES for part in re.split(r" (?:&&|>|\|) ", line) if re.match("multislice [a-z]", part)]
FAULTS = [line for line in LINES if line.startswith("make faults")]
LONG_RUNS = [line for line in LINES if line.startswith(".venv/bin/python -m tests.faults.long_run")]


@pytest.mark.parametrize("line", MULTISLICE)
def test_a_command_line_of_multislice_is_one(line: str) -> None:
    command_of(app, shlex.split(line.partition(" [")[0])[1:], only_named=True)


@pytest.mark.parametrize("line", FAULTS)
def test_a_command_line_of_faults_selects_faults_of_the_catalogue(line: str) -> None:
    arguments = shlex.split(shlex.join(shlex.split(line)[2:]).replace("ARGS=", ""))
    selected = shlex.split(arguments[0])[1:] if arguments else []
    assert {*" ".join(selected).split(" or ")} - {""} <= {fault.name for fault in CATALOGUE}


@pytest.mark.parametrize("line", LONG_RUNS)
def test_a_command_line_of_a_long_run_is_one(line: str) -> None:
    parser().parse_args(shlex.split(line)[3:])
