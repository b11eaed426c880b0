"""How the resources of one stack differ from those of another, in the form of the golden files.

A resource that both stacks have is listed with the fields that differ, one `path: value` each. A resource that only
the second stack has is compared with the most similar one of its type, which `like` names, if that is shorter than
the whole of it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

type Resources = Mapping[str, Mapping[str, Any]]
"""By type and name, such as `gcp:compute/network:Network network`."""

_REMOVED = "removed"
_PLAIN = re.compile(r"[\w-]+")


def difference(base: Resources, other: Resources) -> dict[str, Any]:
    """What turns `base` into `other`; empty if they are equal."""
    gone = [key for key in base if key not in other]
    changed = {key: _of_resource(base, key, described) for key, described in other.items()}
    return ({_REMOVED: gone} if gone else {}) | {key: found for key, found in changed.items() if found}


def _of_resource(base: Resources, key: str, described: Mapping[str, Any]) -> Mapping[str, Any]:
    if key in base:
        return fields(base[key], described)
    kind = key.partition(" ")[0]
    same_type = [known for known in base if known.partition(" ")[0] == kind]
    similar = [{"like": known.partition(" ")[2]} | fields(base[known], described) for known in same_type]
    return min([described, *similar], key=_lines)


def _lines(value: Any) -> int:
    """Roughly as many lines as it takes in YAML."""
    match value:
        case dict():
            return sum(map(_lines, value.values())) + len(value)
        case list():
            return sum(map(_lines, value))
        case _:
            return 1


def fields(base: Any, other: Any) -> dict[str, Any]:
    """The fields of `other` that `base` has not or has otherwise, by path, and the paths that only `base` has."""
    found = dict(_fields(base, other, ""))
    gone = [path for path, value in found.items() if value is _GONE]
    kept = {path: value for path, value in found.items() if value is not _GONE}
    return ({_REMOVED: gone} if gone else {}) | kept


_GONE = object()


def _fields(base: Any, other: Any, path: str) -> Iterator[tuple[str, Any]]:
    parts, others = _parts(base, other)
    if parts is None or others is None:
        if _written(base) != _written(other):
            yield path, other
        return
    for part, value in parts.items():
        if part not in others:
            yield f"{path}{part}".removeprefix("."), _GONE
        else:
            yield from _fields(value, others[part], f"{path}{part}".removeprefix("."))
    yield from ((f"{path}{part}".removeprefix("."), value) for part, value in others.items() if part not in parts)


def _parts(base: Any, other: Any) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Both by the next part of the path; None if they are compared as a whole."""
    match base, other:
        case dict(), dict():
            return _by_key(base), _by_key(other)
        case list(), list() if _in_order(base, other):
            return _by_name(base), _by_name(other)
        case list(), list() if len(base) == len(other):
            return _by_index(base), _by_index(other)
        case _:
            return None, None


def _by_key(value: dict[str, Any]) -> dict[str, Any]:
    return {f".{key}" if _PLAIN.fullmatch(key) else f'["{key}"]': value[key] for key in sorted(value)}


def _by_index(value: list[Any]) -> dict[str, Any]:
    return {f"[{index}]": each for index, each in enumerate(value)}


def _by_name(value: list[Any]) -> dict[str, Any]:
    return {f"[name={each['name']}]": each for each in value}


def _in_order(base: list[Any], other: list[Any]) -> bool:
    """Return whether names identify the elements: no duplicates, common ones in the same order, new ones last."""
    names, others = _names(base), _names(other)
    if names is None or others is None:
        return False
    kept = [name for name in names if name in others]
    return others == [*kept, *(name for name in others if name not in names)]


def _names(value: list[Any]) -> list[str] | None:
    names = [each.get("name") if isinstance(each, dict) else None for each in value]
    texts = [name for name in names if isinstance(name, str)]
    return texts if len(set(texts)) == len(names) else None


def _written(value: Any) -> str:
    """For a comparison in which 1 is neither 1.0 nor True."""
    return json.dumps(value, sort_keys=True)
