"""Tests that documents name as `tests/FILE.py::NAME`: that they exist, and what is written in them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tests.documents.pages import ROOT


def source_of(name: str) -> str | None:
    """The text of the test, or of its whole module where no test of it is named; None: there is none."""
    path, _, test = name.partition("::")
    if not (ROOT / path).is_file():
        return None
    return _functions(path).get(test) if test else (ROOT / path).read_text()


def reached_from(name: str) -> str:
    """What the test runs, as far as its module says: its own text, and that of all that it names there, in turn.

    Names do not count: a test or a helper that is called after a command need not run it.
    """
    path, _, test = name.partition("::")
    definitions = _definitions(path)
    seen: dict[str, None] = {}
    left = [test]
    while left:
        if (found := left.pop()) in definitions and found not in seen:
            seen[found] = None
            left += definitions[found].names
    return "\n".join(definitions[found].text for found in seen)


@dataclass(frozen=True)
class _Definition:
    """A function, class or constant of a module."""

    text: str
    """Without its name and its docstring."""
    names: frozenset[str]
    """Of all that it may run: what it calls, reads, or takes as a fixture."""


@cache
def _definitions(path: str) -> dict[str, _Definition]:
    text = (ROOT / path).read_text()
    return {name: _definition(name, node, text) for node in ast.parse(text).body for name in _defined(node)}


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id


def _definition(name: str, node: ast.stmt, text: str) -> _Definition:
    inner = [*ast.walk(node)]
    names = {each.id for each in inner if isinstance(each, ast.Name)}
    names |= {each.arg for each in inner if isinstance(each, ast.arg)}
    whole = ast.get_source_segment(text, node) or ""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        above = [ast.get_source_segment(text, each) or "" for each in node.decorator_list]
        whole = "\n".join([*above, whole.replace(name, "", 1).replace(ast.get_docstring(node, clean=False) or "", "")])
    return _Definition(whole, frozenset(names))


@cache
def _functions(path: str) -> dict[str, str]:
    """Every test of a module, with its decorators."""
    text = (ROOT / path).read_text()
    lines = text.splitlines()
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    first = {node.name: min([node.lineno, *(each.lineno for each in node.decorator_list)]) for node in functions}
    return {node.name: "\n".join(lines[first[node.name] - 1 : node.end_lineno]) for node in functions}
