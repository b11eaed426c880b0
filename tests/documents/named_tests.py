"""Tests that documents name as `tests/FILE.py::NAME`: that they exist, and what is written in them."""

import ast
from functools import cache

from tests.documents.pages import ROOT


def source_of(name: str) -> str | None:
    """The text of the test, or of its whole module where no test of it is named; None: there is none."""
    path, _, test = name.partition("::")
    if not (ROOT / path).is_file():
        return None
    return _functions(path).get(test) if test else (ROOT / path).read_text()


@cache
def _functions(path: str) -> dict[str, str]:
    """Every test of a module, with its decorators."""
    text = (ROOT / path).read_text()
    lines = text.splitlines()
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    first = {node.name: min([node.lineno, *(each.lineno for each in node.decorator_list)]) for node in functions}
    return {node.name: "\n".join(lines[first[node.name] - 1 : node.end_lineno]) for node in functions}
