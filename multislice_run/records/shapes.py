"""Reads a record from JSON. A dataclass says which keys it has, of which types and in which ranges."""

import re
from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache
from inspect import formatannotation
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

_Kind = TypeVar("_Kind")
_Check = Callable[[Any], bool]

_MAX_INTEGER = 2**1000
"""Limit of integers where a float is expected. `float` can represent it."""


def within(least: float, most: float) -> _Check:
    """Return the check of a number for `Annotated`. NaN is in no range."""
    return lambda value: least <= value <= most


def matching(expression: str) -> _Check:
    """Return the check of a text for `Annotated`."""
    return lambda value: re.fullmatch(expression, value) is not None


def parse(kind: type[_Kind], document: Any) -> _Kind:
    """Return the record in a JSON value. Keys that `kind` does not have are ignored.

    Nothing is converted: a number that was written as text is an error.

    Raises:
        ValueError: the value is no object, a key without a default is missing, or a value has another type or range.
    """
    if not isinstance(document, dict):
        raise ValueError(f"expected an object, got {document!r:.40}")
    found: dict[str, Any] = {}
    for name, (required, check) in _checks(kind).items():
        if name in document:
            value = found[name] = document[name]
            if not check(value):
                expected = formatannotation(get_type_hints(kind)[name])
                raise ValueError(f"{name}: expected {expected} in its range, got {value!r:.40}")
        elif required:
            raise ValueError(f"{name} is missing")
    return kind(**found)


@cache
def _checks(kind: Any) -> dict[str, tuple[bool, _Check]]:
    """Return for each key whether it must be there, and the check of its value."""
    hints = get_type_hints(kind, include_extras=True)
    return {
        each.name: (each.default is MISSING and each.default_factory is MISSING, _check(hints[each.name]))
        for each in fields(kind)
    }


def _check(hint: Any) -> _Check:
    """Return the check that a value has this type: a plain one, a list, or one of them or None."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        of_type, limit = _check(args[0]), args[1]
        return lambda value: of_type(value) and limit(value)
    if origin in (Union, UnionType):
        (of_known,) = (_check(each) for each in args if each is not NoneType)
        return lambda value: value is None or of_known(value)
    if origin is list:
        of_item = _check(args[0])
        return lambda value: isinstance(value, list) and all(map(of_item, value))
    if hint is float:
        return lambda value: type(value) is float or (type(value) is int and abs(value) < _MAX_INTEGER)
    return lambda value: type(value) is hint
