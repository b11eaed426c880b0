"""A function and its arguments as the parts of a parcel, or a refusal that names what cannot go."""

import functools
import inspect
import json
import linecache
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

from multislice.errors import Refused
from multislice.project import Project
from workloads.call.folder import ARGUMENTS, FUNCTION, SOURCES, TEXT
from workloads.call.parcel import MOST_BYTES
from workloads.call.pickling import Unpicklable, pickled, sizes, too_large

_ADVICE = "Put it in a bucket and pass its path"


@dataclass(frozen=True)
class Packed:
    """A call, ready to go."""

    function: str
    """Its name."""
    parts: Mapping[str, bytes]


def pack(
    function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any], project: Project
) -> Packed:
    """The call as files.

    Raises:
        Refused: the arguments do not fit the function, or something cannot travel; names it.
    """
    name = getattr(function, "__name__", type(function).__name__)
    about_arguments = _arguments(function, arguments, named)
    about_function = dict(_captured(function))
    try:
        parts = {
            FUNCTION: pickled(about_function, function, project.refusal),
            ARGUMENTS: pickled(about_arguments, (arguments, dict(named)), project.refusal),
            TEXT: json.dumps(_text(function)).encode(),
        }
    except Unpicklable as fault:
        raise Refused(f"{name} cannot be called on slices:\n{fault}") from None
    if sources := project.sources():
        parts[SOURCES] = sources
    total = sum(map(len, parts.values()))
    if total > MOST_BYTES:
        largest = sizes({**about_arguments, **about_function}, project.refusal)
        largest.append((len(sources or b""), "the folders of ships="))
        told = too_large("code and arguments", total, MOST_BYTES, sorted(largest, reverse=True), _ADVICE)
        raise Refused(f"{name} cannot be called on slices: {told}")
    return Packed(name, parts)


def _arguments(function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by the function's own names for them."""
    try:
        bound = inspect.signature(function).bind(*arguments, **named)
    except TypeError as fault:
        raise Refused(f"the arguments do not fit {getattr(function, '__name__', function)}: {fault}") from None
    return {f"argument `{name}`": value for name, value in bound.arguments.items()}


def _captured(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """What the function takes with it, by what people call it."""
    inner = inspect.unwrap(function)
    if isinstance(inner, functools.partial):
        yield from _arguments(inner.func, inner.args, inner.keywords).items()
        inner = inner.func
    code = getattr(inner, "__code__", None)
    if not isinstance(code, CodeType):
        yield "the function", inner
        return
    cells = getattr(inner, "__closure__", None) or ()
    for name, cell in zip(code.co_freevars, cells, strict=True):
        try:
            yield f"closure variable `{name}`", cell.cell_contents
        except ValueError:  # not set yet
            continue
    variables = getattr(inner, "__globals__", {})
    for name in sorted(_names(code) & variables.keys()):
        yield f"global `{name}`", variables[name]
    for name, parameter in inspect.signature(inner).parameters.items():
        if parameter.default is not inspect.Parameter.empty:
            yield f"default of `{name}`", parameter.default


def _text(function: Callable[..., Any]) -> dict[str, str]:
    """The source file of the function, by its name; of a notebook, the cell."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    lines = linecache.getlines(code.co_filename) if isinstance(code, CodeType) else []
    return {code.co_filename: "".join(lines)} if code and lines else {}


def _names(code: CodeType) -> set[str]:
    """Global names that the code and what is defined in it may use."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_names, inner))
