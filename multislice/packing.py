"""Packs a function and its arguments into the parts of a parcel, or refuses with the name of what cannot be sent.

The source lines of functions that are sent by value travel too, so that tracebacks on a host can show them. Other lines
of their files are not sent.
"""

import dis
import functools
import inspect
import json
import linecache
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType
from typing import Any, cast

from multislice.errors import Refused
from multislice.project import Project, module_of
from workloads.call import parcel
from workloads.call.folder import ARGUMENTS, FUNCTION, SOURCES, TEXT
from workloads.call.pickling import TooLarge, Unpicklable, pickled, size_bytes, sizes, too_large

_ADVICE = "Put it in a bucket and pass its path"
_USES = frozenset(("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL"))


@dataclass(frozen=True)
class Packed:
    """A call that is ready to submit."""

    function: str
    parts: Mapping[str, bytes]


def pack(
    function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any], project: Project
) -> Packed:
    """Pack a call of a function. Raise as `pack_calls` does."""
    return pack_calls(function, [(arguments, named)], project)[0]


def pack_calls(
    function: Callable[..., Any], calls: Sequence[tuple[tuple[Any, ...], Mapping[str, Any]]], project: Project
) -> list[Packed]:
    """Pack calls of a function with these arguments.

    Raises:
        Refused: The arguments do not match the function, something cannot be sent, or a call is too large. The message
            names it.
    """
    name, given = function_name(function), [_arguments(function, *call) for call in calls]
    captured = dict(_captured(function))
    common = {
        FUNCTION: _part(name, captured, _own(function, project), project),
        TEXT: json.dumps(source_lines(function)).encode(),
    }
    if sources := project.sources():
        common[SOURCES] = sources
    packed: list[Packed] = []
    for (arguments, named), by_name in zip(calls, given, strict=True):
        parts = {**common, ARGUMENTS: _part(name, by_name, (arguments, dict(named)), project)}
        total = sum(map(len, parts.values()))
        if total > parcel.MAX_BYTES:
            largest = sizes({**by_name, **captured}, project.refusal)
            raise _too_large(name, total, [*largest, (len(sources or b""), "the folders of ships=")])
        packed.append(Packed(name, parts))
    return packed


def function_name(function: object) -> str:
    """Return the name of the function, or of its type if it has no name."""
    while isinstance(function, functools.partial):
        function = function.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return getattr(function, "__name__", type(function).__name__)  # pyright: ignore[reportUnknownArgumentType]


def _own(function: Callable[..., Any], project: Project) -> Callable[..., Any]:
    """Return a copy of the function. A copy is in no module, so that pickle sends it by value."""
    if not isinstance(function, FunctionType) or not project.refusal(function):
        return function
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    for name in functools.WRAPPER_ASSIGNMENTS:
        setattr(copy, name, getattr(function, name))
    return copy


def _part(name: str, named: Mapping[str, Any], value: object, project: Project) -> bytes:
    try:
        return pickled(named, value, project.refusal)
    except Unpicklable as error:
        raise Refused(f"{name} cannot be called on slices:\n{error}") from None
    except TooLarge:
        raise _too_large(name, size_bytes(value, project.refusal), sizes(named, project.refusal)) from None


def _too_large(name: str, total: int, largest: list[tuple[int, str]]) -> Refused:
    message = too_large("code and arguments", total, parcel.MAX_BYTES, sorted(largest, reverse=True), _ADVICE)
    return Refused(f"{name} cannot be called on slices: {message}")


def _arguments(function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by the names of the function's parameters."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # some functions written in C have no signature
        return {f"argument {name!r}": value for name, value in [*enumerate(arguments), *named.items()]}
    try:
        return _by_name(signature.bind(*arguments, **named))
    except TypeError as error:
        raise Refused(f"the arguments do not fit {function_name(function)}: {error}") from None


def _by_name(bound: inspect.BoundArguments) -> dict[str, Any]:
    return {f"argument `{name}`": value for name, value in bound.arguments.items()}


def _captured(function: object) -> Iterator[tuple[str, Any]]:
    """Yield the objects that are sent with the function, with descriptions of them."""
    if isinstance(function, functools.partial):
        given: Any = function
        yield from _by_name(inspect.signature(given.func).bind_partial(*given.args, **given.keywords)).items()
        yield from _captured(given.func)
    elif isinstance(function, MethodType):
        yield "its object `self`", function.__self__
        yield from _captured(function.__func__)
    elif isinstance(function, FunctionType):
        yield from ((f"closure variable `{name}`", value) for name, value in closure(function).items())
        yield from ((f"global `{name}`", value) for name, value in used_globals(function).items())
        for name, parameter in inspect.signature(function, follow_wrapped=False).parameters.items():
            if parameter.default is not inspect.Parameter.empty:
                yield f"default of `{name}`", parameter.default
        if (inner := plain(function)) is not function:
            yield from _captured(inner)
    else:
        yield "the function", function


def plain(value: object) -> object:
    """Return the function without partial arguments, bindings and wrappers. Other objects are returned unchanged."""
    while isinstance(value, functools.partial | MethodType):
        value = value.func if isinstance(value, functools.partial) else value.__func__  # pyright: ignore
    return inspect.unwrap(cast(Callable[..., Any], value)) if callable(value) else value  # pyright: ignore


def used_globals(function: FunctionType) -> dict[str, object]:
    """Return the global variables that the function and its inner functions use."""
    variables = function.__globals__
    return {name: variables[name] for name in sorted(_names(function.__code__) & variables.keys())}


def closure(function: FunctionType) -> dict[str, object]:
    """Return the variables of the enclosing functions that the function uses."""
    found: dict[str, object] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        # A variable that is not set yet has an empty cell.
        with suppress(ValueError):
            found[name] = cell.cell_contents
    return found


def source_lines(function: Callable[..., Any]) -> dict[str, str]:
    """Return the source of each file or notebook cell. Lines that are not sent are empty, to keep the line numbers."""
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
    """Yield the code of a function and of the functions that are sent with it by value."""
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
    """Return the line numbers of the code, from its first to its last line."""
    ends = [end for _, end, _, _ in code.co_positions() if end]
    inner = (_numbers(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(range(code.co_firstlineno, max(ends, default=code.co_firstlineno) + 1)).union(*inner)
