"""Test that the commands in messages can be run unchanged."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from cli.explain.finding import MEANINGS
from cli.multislice import app

ROOT = Path(__file__).parents[2]
SOURCES = ("cli", "infra", "multislice", "workloads")
_NAMED = re.compile(r"(?:^|[`(]|: |cli\.|\bor |with )multislice ([a-z][^`;,)\n]*)")


def parsed(words: str) -> None:
    """Parse a command line as the program would, and run nothing. A command may be given by its name alone.

    Raises:
        Exception: it has no such command, or the command does not take these words.
    """
    group: Any = typer.main.get_command(app)
    rest = shlex.split(words)
    with group.make_context("multislice", rest) as context:
        name, command, rest = group.resolve_command(context, rest)
        while hasattr(command, "commands"):
            name, command, rest = command.resolve_command(context, rest)
        if rest:
            command.make_context(name, rest, parent=context)


def texts(path: Path) -> Iterator[str]:
    """Yield the texts of the program, with names in place of inserted values, but without docstrings."""
    tree = ast.parse(path.read_text())
    unsaid = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(_value(part) for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in unsaid | parts:
            yield node.value


def _value(part: ast.expr) -> str:
    if isinstance(part, ast.Constant):
        return str(part.value)
    return "-s dev --sandbox x" if ast.unparse(part).rstrip("}").endswith("options") else "x"


def advice() -> Iterator[tuple[str, str]]:
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for text in texts(path):
                found = text.replace("{job}", "x").replace("{stack}", "dev").replace("{options}", "-s dev")
                yield from ((words.strip(), path.name) for words in _NAMED.findall(found))


@pytest.mark.parametrize("words", sorted({words for words, _ in advice()}))
def test_a_command_that_is_named_can_be_run(words: str) -> None:
    parsed(words)


def test_those_who_explain_name_commands() -> None:
    assert {name for _, name in advice()} >= {"finding.py", "hosts.py", "queueing.py", "observe.py"}


@pytest.mark.parametrize(
    "words", ["explian x -s dev", "explain x --job", "logs x -s dev --al", "status -s dev --engine moon"]
)
def test_a_command_that_is_not_there_would_be_found(words: str) -> None:
    with pytest.raises(Exception, match="explian|--job|--al|moon"):
        parsed(words)


@pytest.mark.parametrize("code", sorted(MEANINGS))
def test_what_to_do_after_each_exit_code_is_a_whole_sentence(code: int) -> None:
    assert "{" not in MEANINGS[code].next.format(job="tiny", stack="dev", options="-s dev", up="multislice up -s dev")
