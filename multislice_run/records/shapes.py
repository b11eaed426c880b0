"""Reads a record from JSON. A dataclass says which keys it has, of which types and in which ranges."""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import cache
from re import fullmatch
from types import UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

_Kind = TypeVar("_Kind")

_LARGEST_WHOLE = 2**1000
"""Limit of integers where a float is expected. `float` can represent it."""


@dataclass(frozen=True)
class Range:
    """Least and greatest value of a number. NaN is in no range."""

    least: float
    most: float

    def allows(self, value: float) -> bool:
        return self.least <= value <= self.most


@dataclass(frozen=True)
class Pattern:
    """Regular expression of a text."""

    expression: str

    def allows(self, value: str) -> bool:
        return fullmatch(self.expression, value) is not None


def parse(kind: type[_Kind], document: Any) -> _Kind:
    """Return the record in a JSON value. Keys that `kind` does not have are ignored.

    Nothing is converted: a number that was written as text is an error.

    Raises:
        ValueError: the value is no object, a key without a default is missing, or a value has another type or range.
    """
    if not isinstance(document, dict):
        raise ValueError(f"expected an object, got {document!r:.40}")
    found: dict[str, Any] = {}
    for key in _keys(kind):
        if key.name in document:
            value = found[key.name] = document[key.name]
            if not key.fits(value):
                raise ValueError(f"{key.name}: expected {key.expected}, got {value!r:.40}")
        elif key.required:
            raise ValueError(f"{key.name} is missing")
    return kind(**found)


class _Key(NamedTuple):
    name: str
    required: bool
    fits: Callable[[Any], bool]
    expected: str


@cache
def _keys(kind: Any) -> tuple[_Key, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        _Key(
            field.name,
            field.default is MISSING and field.default_factory is MISSING,
            _check(hints[field.name]),
            str(field.type),
        )
        for field in fields(kind)
    )


def _check(hint: Any) -> Callable[[Any], bool]:
    """Return the check that a value has this type."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        inner, limit = _check(args[0]), args[1]
        return lambda value: inner(value) and limit.allows(value)
    if origin in (Union, UnionType):
        inners = [*map(_check, args)]
        return lambda value: any(inner(value) for inner in inners)
    if origin is list:
        of_item = _check(args[0])
        return lambda value: isinstance(value, list) and all(map(of_item, value))
    if origin is dict:
        return lambda value: isinstance(value, dict)
    if hint is float:
        return lambda value: type(value) is float or (type(value) is int and abs(value) < _LARGEST_WHOLE)
    return lambda value: type(value) is hint
