"""Plain values of resources: secrets and unknowns in them, their differences, and Pulumi's wire format for them.

A resource's inputs and state are JSON objects here. Two things go beyond JSON: a `Secret`, and the text `UNKNOWN` in
place of a value that only the cloud will know (in previews).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Literal

from google.protobuf import json_format, struct_pb2
from kubernetes.utils.quantity import parse_quantity
from pulumi.runtime import rpc

from infra.cluster.kubernetes import Json

UNKNOWN = rpc.UNKNOWN
"""The engine's marker of a value that is not known yet."""

_MISSING = object()


@dataclass(frozen=True)
class Secret:
    """A value that the engine encrypts in its state and hides in its output."""

    value: Any


@dataclass(frozen=True)
class Change:
    """One difference between two objects, as in the engine's detailed diff."""

    path: str
    """Property path in the engine's syntax, such as `spec.rules[0].hosts["a.b"]`."""
    kind: Literal["ADD", "DELETE", "UPDATE"]

    def is_under(self, path: str) -> bool:
        return self.path == path or self.path.startswith((f"{path}.", f"{path}["))


def reveal(value: Any) -> Any:
    """Return `value` with every secret in plain text, for the API that receives it."""
    return _replace_secrets(value, lambda inner: inner)


def _replace_secrets(value: Any, replacement: Callable[[Any], Any]) -> Any:
    """Return `value` with `replacement` of its content in place of every secret, whose own secrets are replaced too."""
    match value:
        case Secret(inner):
            return replacement(_replace_secrets(inner, replacement))
        case dict():
            return {key: _replace_secrets(item, replacement) for key, item in value.items()}
        case list():
            return [_replace_secrets(item, replacement) for item in value]
        case _:
            return value


def conceal(value: Any, like: Any) -> Any:
    """Return `value` with a secret wherever `like` has one."""
    match value, like:
        case _, Secret():
            return Secret(reveal(value))
        case dict(), dict():
            return {key: conceal(item, like.get(key)) for key, item in value.items()}
        case list(), list():
            return [conceal(item, mark) for item, mark in zip_longest(value, like[: len(value)])]
        case _:
            return value


def has_unknown(value: Any) -> bool:
    """Return whether some part of `value` is not known yet."""
    match reveal(value):
        case dict(items):
            return any(map(has_unknown, items.values()))
        case list(items):
            return any(map(has_unknown, items))
        case leaf:
            return leaf == UNKNOWN


def merge(base: Json, over: Json) -> Json:
    """Return both objects merged; where both have a value that is not an object, `over` wins."""
    result = dict(base)
    for key, item in over.items():
        old = result.get(key)
        result[key] = merge(old, item) if isinstance(old, dict) and isinstance(item, dict) else item
    return result


def at(value: Json, path: str) -> Any:
    """Return the value at a path of names, None if it does not exist."""
    found: Any = value
    for key in path.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def with_value(value: Json, path: str, wanted: Any) -> Json:
    """Return `value` with `wanted` at a path of names; None removes the value. Unchanged if a parent is missing."""
    key, _, rest = path.partition(".")
    if rest:
        inner = value.get(key)
        return value | {key: with_value(inner, rest, wanted)} if isinstance(inner, dict) else value
    kept = {name: item for name, item in value.items() if name != key}
    return kept if wanted is None else kept | {key: wanted}


def unknown_leaves(value: Any) -> Any:
    """Return the same structure of objects with every leaf unknown."""
    return {key: unknown_leaves(item) for key, item in value.items()} if isinstance(value, dict) else UNKNOWN


def changes(old: Any, new: Any, path: str = "") -> Iterator[Change]:
    """Yield the differences from `old` to `new`, leaf by leaf; whole objects where only one side has them."""
    match reveal(old), reveal(new):
        case before, _ if before is _MISSING:
            yield Change(path, "ADD")
        case _, after if after is _MISSING:
            yield Change(path, "DELETE")
        case dict(before), dict(after):
            for key in sorted({*before, *after}):
                yield from changes(before.get(key, _MISSING), after.get(key, _MISSING), _join(path, key))
        case list(before), list(after):
            for index, (left, right) in enumerate(zip_longest(before, after, fillvalue=_MISSING)):
                yield from changes(left, right, f"{path}[{index}]")
        case before, after if before != after:
            yield Change(path, "UPDATE")
        case _:
            pass


def prune(live: Any, like: Any, applied: Any = None) -> Any:
    """Return the part of the `live` value that the inputs `like` declare, without defaults and what controllers added.

    `applied` is the API's answer when `like` was sent: a leaf that is still the same, or the same quantity, is returned
    as it was written.
    """
    match like:
        case Secret(inner):
            return Secret(prune(live, inner, reveal(applied)))
        case dict() if isinstance(live, dict):
            before = applied if isinstance(applied, dict) else {}
            # An empty input that the API does not store is no difference.
            empty = {key: want for key, want in like.items() if key not in live and want in ({}, [])}
            return {key: prune(live[key], want, before.get(key)) for key, want in like.items() if key in live} | empty
        case list() if isinstance(live, list):
            # A controller may append items, as Kueue does with tolerations. They are not the program's.
            before = applied if isinstance(applied, list) else []
            triples = zip_longest(live, like, before)
            return [prune(*triple) for triple in list(triples)[: min(len(live), len(like))]]
        case _:
            return like if live in (like, applied) or _same_quantity(live, like) else live


def _same_quantity(live: Any, like: Any) -> bool:
    if isinstance(live, bool) or isinstance(like, bool) or not {type(live), type(like)} <= {str, int, float}:
        return False
    try:
        return parse_quantity(live) == parse_quantity(like)
    except ValueError:
        return False


def _join(path: str, key: str) -> str:
    if not key.replace("_", "").isalnum():
        return f'{path}["{key}"]'
    return f"{path}.{key}" if path else key


# https://github.com/pulumi/pulumi/blob/master/sdk/go/common/resource/properties.go
_SIGNATURE = "4dabf18193072939515e22adb298388d"
_SECRET = "1b47061264138c4ac30d75fd1eb44270"


def plain_object(struct: struct_pb2.Struct) -> Json:
    """Return an object read from the wire. Nulls in objects are dropped: to every API here they mean unset."""

    def plain(value: Any) -> Any:
        match value:
            case dict() if value.get(_SIGNATURE) == _SECRET:
                return Secret(plain(value["value"]))
            case dict():
                return {key: plain(item) for key, item in value.items() if item is not None}
            case list():
                return [plain(item) for item in value]
            case float() if value.is_integer():
                return int(value)
            case _:
                return value

    return plain(json_format.MessageToDict(struct))


def wire_object(value: Json) -> struct_pb2.Struct:
    """Return an object for the wire."""
    wired = _replace_secrets(value, lambda inner: {_SIGNATURE: _SECRET, "value": inner})
    return json_format.ParseDict(wired, struct_pb2.Struct())
