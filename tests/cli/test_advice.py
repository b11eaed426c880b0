"""Test that the commands in messages can be run unchanged."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from cli.explain.finding import advise
from cli.main import app
from cli.observed.snapshot import Snapshot
from cli.options import ClusterCommand
from infra.stack.command_lines import FOR_MEMBERS, Reader
from multislice_run.exit_codes import MEANINGS
from tests.cli.explain.cases import JOB, NOW

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


READERS = {
    "the owner": Reader("dev", "-s dev"),
    "the owner of a sandbox": Reader("dev", "-s dev --sandbox x", ("--sandbox", "x")),
    "a member": Reader("dev", "--namespace research --context team"),
}
_IN_TEXT = re.compile(r"multislice ([^`.;]*)")


def commands(group: Any) -> dict[str, Any]:
    return {name: each for name, each in group.commands.items() if not hasattr(each, "commands")}


def test_members_are_advised_exactly_the_commands_that_need_only_a_kubeconfig() -> None:
    found = commands(typer.main.get_command(app))
    assert {name for name, each in found.items() if isinstance(each, ClusterCommand)} >= FOR_MEMBERS
    assert not {name for name in FOR_MEMBERS if not isinstance(found[name], ClusterCommand)}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("code", sorted(MEANINGS))
def test_the_advice_after_each_exit_code_can_be_run_by_its_reader(code: int, reader: Reader) -> None:
    seen = Snapshot("dev", reader.options, "dev", NOW, tuple(reader.engine_options), jobs=(JOB,))
    text = "; ".join(advise(MEANINGS[code], seen, JOB))
    assert "{" not in text
    for words in _IN_TEXT.findall(text):
        parsed(words)
        if reader.is_member and words.split()[0] not in FOR_MEMBERS:
            assert "ask the owner of stack dev to run" in text
        elif not reader.is_member:
            assert "-s dev" in words


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("name", ["doctor", "review", "preflight", "status", "logs", "list", "explain", "report"])
def test_an_advised_command_is_one_that_its_reader_can_run(name: str, reader: Reader) -> None:
    advised = reader.command(name)
    parsed(advised.partition("multislice ")[2])
    assert ("ask the owner" in advised) == (reader.is_member and name not in FOR_MEMBERS)


def test_a_member_asks_the_owner_to_deploy_the_stack() -> None:
    assert READERS["a member"].run_up() == "ask the owner of stack dev to run `multislice up -s dev`"
    assert READERS["the owner of a sandbox"].run_up() == "run `multislice up -s dev --sandbox x`"
