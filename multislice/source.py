"""What a function's code refers to, and the lines of source that a traceback on a host shows.

Those are the lines of the functions that travel by value, and no others of their files: what else stands there, nobody
thought of sending.
"""

import dis
import functools
import inspect
import linecache
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any, cast

from multislice.project import module_of

_USES = frozenset(("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL"))


def plain(value: object) -> object:
    """The function below given arguments, a binding and wrappers; what is no function as it is."""
    while isinstance(value, functools.partial | MethodType):
        value = value.func if isinstance(value, functools.partial) else value.__func__  # pyright: ignore
    return inspect.unwrap(cast(Callable[..., Any], value)) if callable(value) else value  # pyright: ignore


def used_globals(function: FunctionType) -> dict[str, object]:
    """Global variables that the function uses, itself or in what is defined in it."""
    variables = function.__globals__
    return {name: variables[name] for name in sorted(_names(function.__code__) & variables.keys())}


def closure(function: FunctionType) -> dict[str, object]:
    """Variables of the functions around it that the function uses."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells if _is_set(cell)}


def source_lines(function: Callable[..., Any]) -> dict[str, str]:
    """By file, or cell of a notebook: its lines as far as they travel; the others are empty, for lines have numbers."""
    kept: dict[str, set[int]] = defaultdict(set)
    for code in _codes(function, set()):
        kept[code.co_filename] |= _numbers(code)
    files = {file: linecache.getlines(file) for file in kept}
    return {
        file: "".join(line if number in kept[file] else "\n" for number, line in enumerate(lines, 1))
        for file, lines in files.items()
        if lines
    }


def _codes(value: object, seen: set[int]) -> Iterator[CodeType]:
    """Code of a function, and of those that go with it by value."""
    function = plain(value)
    if not isinstance(function, FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    yield function.__code__
    for used in (*closure(function).values(), *used_globals(function).values()):
        if module_of(used) is None:
            yield from _codes(used, seen)


def _names(code: CodeType) -> set[str]:
    used = {str(step.argval) for step in dis.get_instructions(code) if step.opname in _USES}
    return used.union(*(_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)))


def _numbers(code: CodeType) -> set[int]:
    """Numbers of the lines that the code was written on, from its head to its end."""
    ends = [end for _, end, _, _ in code.co_positions() if end]
    inner = (_numbers(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(range(code.co_firstlineno, max(ends, default=code.co_firstlineno) + 1)).union(*inner)


def _is_set(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - asks whether there are any
    except ValueError:
        return False
    return True
