"""The messages of the program, read from its sources: what can be quoted of them, and what cannot."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.documents.pages import ROOT

SOURCES = ("infra", "policy", "workloads", "sandbox", "cli", "chaos", "multislice")
RECORDED = (
    "tests/cli/api_objects.py",
    "tests/cli/view/recordings.py",
    "tests/cli/view/test_plain.py",
    "tests/chain/test_access.py",
)
"""Tests that hold what Kueue and Kubernetes said, or have them say it."""

_ANYTHING = "\0"
"""Stands in a message for a value that is put in."""


@cache
def messages() -> tuple[str, ...]:
    """Every text of the sources, its values replaced by a mark."""
    modules = [path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py"))]
    return tuple(text for path in [*modules, *(ROOT / name for name in RECORDED)] for text in _texts(path))


def is_said(quoted: str) -> bool:
    """Some text of the program has these words in this order; `...` stands for anything."""
    parts = [re.escape(part.strip(" ")) for part in quoted.split("...") if part.strip(" ")]
    pattern = re.compile(".*?".join(parts), re.DOTALL)
    return any(pattern.search(message) for message in messages())


def _texts(path: Path) -> Iterator[str]:
    """Docstrings are said to nobody."""
    tree = ast.parse(path.read_text())
    unsaid = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case _ if id(node) in unsaid:
                pass
            case ast.JoinedStr(values=values):
                yield "".join(_part(value) for value in values)
            case ast.Constant(value=str(text)):
                yield text
            case _:
                pass


def _part(value: ast.expr) -> str:
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else _ANYTHING
