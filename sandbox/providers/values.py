"""Plain values of resources: secrets and unknowns in them, how they differ, and what of them a program wrote.

A resource's inputs and state are JSON objects here. Two things go beyond JSON: a `Secret`, and
the text `UNKNOWN` in place of a value that only the cloud will know (in previews).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal, cast

from kubernetes.utils.quantity import parse_quantity  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]
from pulumi.runtime import rpc

UNKNOWN = rpc.UNKNOWN
"""The engine's mark for a value that is not known yet."""

type Object = dict[str, Any]

_MISSING = object()


@dataclass(frozen=True)
class Secret:
    """A value that the engine encrypts in its state and hides in its output."""

    value: Any


@dataclass(frozen=True)
class Change:
    """One difference between two objects, as the engine's detailed diff tells it."""

    path: str
    """Property path in the engine's syntax, such as `spec.rules[0].hosts["a.b"]`."""
    kind: Literal["ADD", "DELETE", "UPDATE"]


def reveal(value: Any) -> Any:
    """`value` with every secret in clear, for the API that is to have it."""
    match value:
        case Secret(inner):
            return reveal(inner)
        case dict():
            return {key: reveal(item) for key, item in cast(Object, value).items()}
        case list():
            return [reveal(item) for item in cast(list[Any], value)]
        case _:
            return value


def conceal(value: Any, like: Any) -> Any:
    """`value` with a secret wherever `like` has one."""
    match value, like:
        case _, Secret():
            return Secret(reveal(value))
        case dict(), dict():
            marks = cast(Object, like)
            return {key: conceal(item, marks.get(key)) for key, item in cast(Object, value).items()}
        case list(), list():
            pairs = zip_longest(cast(list[Any], value), cast(list[Any], like)[: len(cast(list[Any], value))])
            return [conceal(item, mark) for item, mark in pairs]
        case _:
            return value


def has_unknown(value: Any) -> bool:
    match value:
        case Secret(inner):
            return has_unknown(inner)
        case dict():
            return any(map(has_unknown, cast(Object, value).values()))
        case list():
            return any(map(has_unknown, cast(list[Any], value)))
        case _:
            return value == UNKNOWN


def merged(base: Object, over: Object) -> Object:
    """Both objects in one; where they meet in something else than objects, `over` wins."""
    result = dict(base)
    for key, item in over.items():
        old = result.get(key)
        both = isinstance(old, dict) and isinstance(item, dict)
        result[key] = merged(cast(Object, old), cast(Object, item)) if both else item
    return result


def unknown_leaves(value: Any) -> Any:
    """The same structure of objects with every leaf unknown."""
    if isinstance(value, dict):
        return {key: unknown_leaves(item) for key, item in cast(Object, value).items()}
    return UNKNOWN


def changes(old: Any, new: Any, path: str = "") -> Iterator[Change]:
    """What differs from `old` to `new`, leaf by leaf; whole objects where only one side has them."""
    match reveal(old), reveal(new):
        case before, _ if before is _MISSING:
            yield Change(path, "ADD")
        case _, after if after is _MISSING:
            yield Change(path, "DELETE")
        case dict(before), dict(after):
            for key in sorted({*before, *after}):
                yield from changes(before.get(key, _MISSING), after.get(key, _MISSING), _joined(path, key))
        case list(before), list(after):
            for index, (left, right) in enumerate(zip_longest(before, after, fillvalue=_MISSING)):
                yield from changes(left, right, f"{path}[{index}]")
        case before, after if before != after:
            yield Change(path, "UPDATE")
        case _:
            pass


def pruned(live: Any, like: Any, applied: Any = None) -> Any:
    """What of the `live` value the inputs `like` speak of, so that defaults and controllers do not show.

    `applied` is what the API answered when `like` was sent: a leaf that still reads so, or that
    is the same quantity, is given back as it was written.
    """
    match like:
        case Secret(inner):
            return Secret(pruned(live, inner, reveal(applied)))
        case dict() if isinstance(live, dict):
            return _pruned_object(cast(Object, live), cast(Object, like), applied)
        case list() if isinstance(live, list):
            # A controller may append (Kueue adds tolerations); what it appends is not the program's.
            items, before = cast(list[Any], live), cast(list[Any], applied) if isinstance(applied, list) else []
            triples = zip_longest(items, cast(list[Any], like), before)
            return [
                pruned(item, want, was)
                for item, want, was in list(triples)[: min(len(items), len(cast(list[Any], like)))]
            ]
        case _:
            return like if live == like or live == applied or _same_quantity(live, like) else live


def _pruned_object(live: Object, like: Object, applied: Any) -> Object:
    before = cast(Mapping[str, Any], applied) if isinstance(applied, dict) else {}
    # An empty input that the API does not store is no difference.
    empty = {key: want for key, want in like.items() if key not in live and want in ({}, [])}
    return {key: pruned(live[key], want, before.get(key)) for key, want in like.items() if key in live} | empty


def _same_quantity(live: Any, like: Any) -> bool:
    if isinstance(live, bool) or isinstance(like, bool) or not {type(live), type(like)} <= {str, int, float}:
        return False
    try:
        return parse_quantity(live) == parse_quantity(like)
    except ValueError:
        return False


def _joined(path: str, key: str) -> str:
    if not key.replace("_", "").isalnum():
        return f'{path}["{key}"]'
    return f"{path}.{key}" if path else key
