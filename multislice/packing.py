"""A function and its arguments as the parts of a parcel, or a refusal that names what cannot go."""

import functools
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType, MethodType
from typing import Any

from multislice.errors import Refused
from multislice.project import Project
from multislice.source import closure, plain, source_lines, used_globals
from workloads.call import parcel
from workloads.call.folder import ARGUMENTS, FUNCTION, SOURCES, TEXT
from workloads.call.pickling import TooLarge, Unpicklable, pickled, size_bytes, sizes, too_large

_ADVICE = "Put it in a bucket and pass its path"


@dataclass(frozen=True)
class Packed:
    """A call, ready to go."""

    function: str
    """Its name."""
    parts: Mapping[str, bytes]


@dataclass(frozen=True)
class Code:
    """A function, ready to be called: what of it is the same in every call."""

    name: str
    parts: Mapping[str, bytes]
    _function: Callable[..., Any] = field(repr=False)
    _project: Project = field(repr=False)

    @classmethod
    def of(cls, function: Callable[..., Any], project: Project) -> "Code":
        """The function and the folders that travel with it.

        Raises:
            Refused: something cannot travel; names it.
        """
        name = function_name(function)
        parts = {
            FUNCTION: _part(name, dict(_captured(function)), _own(function, project), project),
            TEXT: json.dumps(source_lines(function)).encode(),
        }
        if sources := project.sources():
            parts[SOURCES] = sources
        return cls(name, parts, function, project)

    def called(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Packed:
        """A call of it with these arguments.

        Raises:
            Refused: they do not fit the function, something cannot travel, or all together is too large; names it.
        """
        given = _arguments(self._function, arguments, named)
        parts = {**self.parts, ARGUMENTS: _part(self.name, given, (arguments, dict(named)), self._project)}
        total = sum(map(len, parts.values()))
        if total > parcel.MOST_BYTES:
            largest = sizes({**given, **dict(_captured(self._function))}, self._project.refusal)
            largest.append((len(parts.get(SOURCES, b"")), "the folders of ships="))
            raise _too_large(self.name, total, largest)
        return Packed(self.name, parts)


def pack(
    function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any], project: Project
) -> Packed:
    """One call of a function as files.

    Raises:
        Refused: the arguments do not fit the function, or something cannot travel; names it.
    """
    _arguments(function, arguments, named)
    return Code.of(function, project).called(arguments, named)


def function_name(function: object) -> str:
    """What people call it: its own name, or what kind of thing it is."""
    while isinstance(function, functools.partial):
        function = function.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return getattr(function, "__name__", type(function).__name__)  # pyright: ignore[reportUnknownArgumentType]


def _own(function: Callable[..., Any], project: Project) -> Callable[..., Any]:
    """The function itself travels by value: a copy is in no module, so nobody has the hosts look it up there."""
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
    except Unpicklable as fault:
        raise Refused(f"{name} cannot be called on slices:\n{fault}") from None
    except TooLarge:
        raise _too_large(name, size_bytes(value, project.refusal), sizes(named, project.refusal)) from None


def _too_large(name: str, total: int, largest: list[tuple[int, str]]) -> Refused:
    told = too_large("code and arguments", total, parcel.MOST_BYTES, sorted(largest, reverse=True), _ADVICE)
    return Refused(f"{name} cannot be called on slices: {told}")


def _arguments(function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments by the function's own names for them."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # some of those written in C do not tell
        return {f"argument {name!r}": value for name, value in [*enumerate(arguments), *named.items()]}
    try:
        return _by_name(signature.bind(*arguments, **named))
    except TypeError as fault:
        raise Refused(f"the arguments do not fit {function_name(function)}: {fault}") from None


def _by_name(bound: inspect.BoundArguments) -> dict[str, Any]:
    return {f"argument `{name}`": value for name, value in bound.arguments.items()}


def _captured(function: object) -> Iterator[tuple[str, Any]]:
    """What the function takes with it, by what people call it."""
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
