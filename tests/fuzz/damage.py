"""Valid input with a few things wrong: in a tree of values, in a text, in bytes."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from datetime import UTC, date, datetime
from typing import Any

from hypothesis import strategies as st

type Path = tuple[Any, ...]


def _nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


JUNK: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.integers(),
    st.sampled_from([10**30, -(10**30), 2**63, 10**400, -(10**400), 1e308, -1e308, 5e-324]),
    st.floats(),
    st.sampled_from(["", "0", "nan", "-1", "1e400", "\0", "\ud800", "a/b", "..", "x" * 300, "${a}", "secure", "2x4"]),
    st.text(max_size=8),
    st.sampled_from([[], {}, [None], [[]], {"": None}, {"secure": "v1:x"}, {"kind": "spot"}, {1: 2}, (), _nested(200)]),
    st.sampled_from([date(2026, 1, 3), datetime(2026, 1, 3, tzinfo=UTC), b"\xff"]),
)
"""What nobody expects, anywhere."""


def _places(value: Any, path: Path = ()) -> Iterator[Path]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _places(item, (*path, key))


def _at(tree: Any, path: Path) -> Any:
    for key in path:
        tree = tree[key]
    return tree


@st.composite
def damaged(draw: st.DrawFn, valid: Callable[[], Any], junk: st.SearchStrategy[Any] = JUNK) -> Any:
    """A tree of mappings and lists after one to three accidents at any depth."""
    box = {"tree": deepcopy(valid())}
    for _ in range(draw(st.integers(1, 3))):
        *parents, last = draw(st.sampled_from([*_places(box)][1:]))
        parent = _at(box, tuple(parents))
        match draw(st.sampled_from(["replace", "drop", "insert", "swap"])):
            case "drop" if parents:
                del parent[last]
            case "insert" if isinstance(parent[last], dict):
                parent[last][draw(st.text(max_size=5) | st.integers(0, 2) | st.none())] = deepcopy(draw(junk))
            case "insert" if isinstance(parent[last], list):
                parent[last].insert(0, deepcopy(draw(junk)))
            case "swap":
                # A value of another place is often of the right type and wrong all the same.
                parent[last] = deepcopy(_at(box, draw(st.sampled_from([*_places(box)][1:]))))
            case _:
                parent[last] = deepcopy(draw(junk))
    return box["tree"]


@st.composite
def damaged_text(draw: st.DrawFn, valid: str) -> str:
    """A text that is cut, torn, or has something in it that does not belong there."""
    text = valid
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 40)))
        match draw(st.sampled_from(["cut", "drop", "insert", "repeat", "replace", "shuffle"])):
            case "cut":
                text = text[:start]
            case "drop":
                text = text[:start] + text[end:]
            case "insert":
                text = text[:start] + draw(st.text(max_size=6) | st.sampled_from('"{}[](),:%= \n&*1')) + text[start:]
            case "repeat":
                text = text[:end] + text[start:end] * draw(st.integers(1, 3)) + text[end:]
            case "shuffle":
                lines = text.split("\n")
                place, other = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
                lines[place], lines[other] = lines[other], lines[place]
                text = "\n".join(lines)
            case _:
                text = text[:start] + draw(st.text(max_size=6)) + text[end:]
    return text


def damaged_bytes(valid: str) -> st.SearchStrategy[bytes]:
    """The text as a file that something has happened to."""
    torn = damaged_text(valid).map(lambda text: text.encode(errors="surrogatepass"))
    deep = st.sampled_from([b"[" * 100_000, b'{"a":' * 50_000, b"", b"\xff\xfe", b"null", b"[]", b"1" * 5_000])
    return torn | torn.flatmap(lambda found: st.binary(max_size=4).map(lambda more: found + more)) | deep
