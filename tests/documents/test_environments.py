"""The commands of docs/environments.md are commands, and its labels and limits those of the program."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from cli.environments.derivation import LONGEST, lifetime
from cli.multislice import app
from infra.environment import Environment
from infra.faults import Fault

TEXT = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()


@pytest.mark.parametrize("line", re.findall(r"^bin/multislice (env .*)$", TEXT, re.MULTILINE))
def test_every_command_is_one(line: str) -> None:
    group: Any = typer.main.get_command(app)
    _, command, *arguments = shlex.split(line)
    assert group.commands["env"].commands[command].make_context(command, arguments)


def test_lifetimes_and_their_limit_are_as_written() -> None:
    assert f"more than {LONGEST.days} days (`90m`, `8h`, `2d`)" in TEXT
    assert not any(isinstance(lifetime(text), Fault) for text in ("90m", "8h", "2d"))


def test_labels_are_as_written() -> None:
    labels = Environment(source="dev", expires_at="2026-11-21T18:00:00Z").labels
    assert all(f"`{name}`" in TEXT for name in labels)
    assert f"(`{labels['expires-at']}`)" in TEXT
