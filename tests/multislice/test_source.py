"""Which lines of a file travel."""

from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from multislice.source import closure, source_lines, used_globals

TEXT = """\
TOKEN = "of nobody's business"

def helper(x):
    return (
        x + 1
    )

def elsewhere():
    return TOKEN

def train(x):
    def inner(y):
        return helper(y)
    return [inner(n) for n in x]
"""
SHOWN = """\


def helper(x):
    return (
        x + 1
    )




def train(x):
    def inner(y):
        return helper(y)
    return [inner(n) for n in x]
"""


@pytest.fixture
def train(tmp_path: Path) -> FunctionType:
    """As if it had been written in a script, whose functions travel by value."""
    (tmp_path / "script.py").write_text(TEXT)
    around: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(TEXT, str(tmp_path / "script.py"), "exec"), around)
    return around["train"]


def test_of_a_file_the_lines_of_functions_that_travel_are_kept_where_they_were(train: Callable[..., Any]) -> None:
    (shown,) = source_lines(train).values()
    assert shown.splitlines() == SHOWN.splitlines()


def test_a_function_without_a_file_has_no_lines() -> None:
    assert source_lines(len) == {}


def test_variables_of_inner_functions_count_and_attributes_do_not(train: FunctionType) -> None:
    assert used_globals(train) == {"helper": train.__globals__["helper"]}


def test_a_variable_that_is_not_set_yet_is_none_of_the_closure() -> None:
    def uses() -> Any:
        return early, late

    early = 1
    assert closure(uses) == {"early": 1}  # pyright: ignore[reportArgumentType]
    late = 2
