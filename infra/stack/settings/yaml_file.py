"""Reads YAML files as Pulumi does, and knows the line of every key. JSON files are YAML files, too."""

import codecs
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infra.stack.settings.errors import FieldError, nearest
from infra.stack.settings.values import NAMESPACE

PREFIX = f"{NAMESPACE}:"
"""Prefix of the program's own keys in `config`."""
STANDARD_INPUT = Path("-")
"""Path that means standard input, as for kubectl."""
_MAX_BYTES, _MAX_VALUES = 1 << 20, 100_000
"""Largest size of a file and its largest number of values. The largest useful file has thousands of values.

An alias counts as many values as its anchor has."""
_TEXT, _MERGE, _NULL = (f"tag:yaml.org,2002:{kind}" for kind in ("str", "merge", "null"))
_SWEEP = "sweep"
"""Key of a job with lists of values by the paths of its settings."""
_INDEX = re.compile(r"\[?(\d+)\]?(?:\.|$|(?=\[))")


class _Loader(yaml.SafeLoader):
    """Reads numbers and booleans as Pulumi's YAML library does, so that `1e9` is a number and `yes` is a string."""


_SCALARS = {
    "tag:yaml.org,2002:bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "tag:yaml.org,2002:int": (r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)", "-+0123456789"),
    "tag:yaml.org,2002:float": (
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+0123456789.",
    ),
}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag not in _SCALARS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for _tag, (_form, _first) in _SCALARS.items():
    _Loader.add_implicit_resolver(_tag, re.compile(rf"^(?:{_form})$"), list(_first))


class UnreadableError(ValueError):
    """Raised for a file that is not YAML or is too large. The message has no file name."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Lines:
    """Lines of the keys of a YAML file, counted from 1."""

    node: yaml.Node | None
    line: int = 1
    """Line of the key whose value is `node`."""

    def below(self, key: str) -> "Lines":
        """Return the lines of the keys below a key; the same lines if the file has no such key."""
        found = _step(self.node, key)
        return Lines(found[1], found[0]) if found else self

    def find(self, path: str) -> int:
        """Return the line of the key at a path such as `slices.trillium.count`, or of the nearest key above it."""
        line, node, rest = self.line, self.node, path
        while rest and (found := _step(node, rest)):
            line, node, rest = found
        return line


@dataclass(frozen=True)
class YamlFile:
    """A YAML file that could be read."""

    path: Path
    content: Any
    lines: Lines
    errors: tuple[tuple[int, str], ...]
    """Line and text of keys that occur twice, and of numbers that YAML reads as two entries."""

    def report(self, errors: Iterable[FieldError], lines: Lines | None = None) -> list[str]:
        """Return all errors of the file in the order of their lines, each as `FILE:LINE: ERROR`.

        The paths of `errors` begin at `lines`. Default: at the top of the file.
        """
        where = lines or self.lines
        return self.ordered((where.find(error.path), str(error)) for error in dict.fromkeys(errors))

    def ordered(self, errors: Iterable[tuple[int, str]]) -> list[str]:
        """Return all errors of the file in the order of their lines; `errors` are further lines and texts."""
        found = sorted([*self.errors, *errors], key=lambda each: each[0])
        return [f"{shown(self.path)}:{line}: {text}" for line, text in found]


def shown(path: Path) -> str:
    """Return a path as the user would type it in the working folder."""
    if path == STANDARD_INPUT:
        return "standard input"
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def read_yaml(path: Path) -> YamlFile:
    """Return a YAML file.

    Raises:
        UnreadableError: it is not YAML in UTF-8 or UTF-16, or is too large, or has several documents.
        OSError: it cannot be read.
    """
    return _read(path, _parse)


def read_documents(path: Path) -> tuple[YamlFile, ...]:
    """Return the documents of a YAML file, or of standard input if the path is `-`, each as a file of its own.

    Raises: as `read_yaml`.
    """
    return _read(path, _parse_all)


def _read[Parsed](path: Path, parse: Callable[[Path, str], Parsed]) -> Parsed:
    from_input = path == STANDARD_INPUT
    data = sys.stdin.buffer.read(_MAX_BYTES + 1) if from_input else b""
    if (len(data) if from_input else path.stat().st_size) > _MAX_BYTES:
        raise UnreadableError(f"the file is larger than {_MAX_BYTES >> 20} MiB, the limit for such files")
    text = _decode(data if from_input else path.read_bytes())
    try:
        return parse(path, text)
    except RecursionError:
        raise UnreadableError("mappings or lists are nested too deeply") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = " ".join(filter(None, (error.context, error.problem)))
        snippet = f"\n{found}" if mark and (found := mark.get_snippet()) else ""
        raise UnreadableError(f"not YAML: {said}{snippet}", mark and mark.line + 1) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise UnreadableError(f"not YAML: the character {chr(int(error.character))!r} is not allowed", line) from None
    except (yaml.YAMLError, LookupError, AttributeError, ValueError) as error:
        # PyYAML does not check that a value matches its tag, such as `!!int`.
        raise error if isinstance(error, UnreadableError) else UnreadableError(f"not YAML: {error}") from None


def _decode(data: bytes) -> str:
    is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if is_wide else "utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        wrong = f"byte 0x{data[error.start]:02x} is not UTF-8; save the file in the encoding UTF-8"
        raise UnreadableError(wrong, line) from None


def _parse(path: Path, text: str) -> YamlFile:
    loader = _Loader(text)
    loader.name = path.name
    try:
        node = loader.get_single_node()
        return YamlFile(path, None, Lines(None), ()) if node is None else _document(path, loader, node)
    finally:
        loader.dispose()


def _parse_all(path: Path, text: str) -> tuple[YamlFile, ...]:
    loader = _Loader(text)
    loader.name = path.name
    found: list[YamlFile] = []
    try:
        while loader.check_node():
            node = loader.get_node()
            assert node, "there is a node to read"
            found.append(_document(path, loader, node))
        return tuple(found)
    finally:
        loader.dispose()


def _document(path: Path, loader: _Loader, node: yaml.Node) -> YamlFile:
    mappings: list[yaml.MappingNode] = []
    if _size(node, {}, mappings) > _MAX_VALUES:
        raise UnreadableError(f"aliases that expand to more than {_MAX_VALUES:,} values; write out the values you need")
    errors = [error for each in mappings for error in (*_join_split(each), *_drop_repeated(each))]
    return YamlFile(path, loader.construct_document(node), Lines(node), tuple(errors))


def _size(node: yaml.Node, sizes: dict[int, int], mappings: list[yaml.MappingNode]) -> int:
    """Return the number of values in a node, and add its mappings. An alias has as many values as its anchor."""
    if id(node) not in sizes:
        sizes[id(node)] = _MAX_VALUES  # A node that contains itself has no finite size.
        children: list[yaml.Node] = list(node.value) if isinstance(node, yaml.SequenceNode) else []
        if isinstance(node, yaml.MappingNode):
            mappings.append(node)
            children = [child for pair in node.value for child in pair]
        sizes[id(node)] = 1 + sum(_size(child, sizes, mappings) for child in children)
    return sizes[id(node)]


def _join_split(node: yaml.MappingNode) -> Iterator[tuple[int, str]]:
    """Yield an error for each number with a comma in braces, which YAML reads as two entries, and make it one entry."""
    kept: list[tuple[yaml.Node, yaml.Node]] = []
    split: dict[int, list[str]] = {}
    for key, value in node.value:
        is_part = isinstance(key, yaml.ScalarNode) and re.fullmatch(r"\d{3}", key.value) and value.tag == _NULL
        before = kept[-1][1] if kept else None
        if is_part and isinstance(before, yaml.ScalarNode) and re.fullmatch(r"\d+", before.value):
            split.setdefault(len(kept) - 1, [before.value]).append(key.value)
            before.value += key.value
        else:
            kept.append((key, value))
    node.value = kept
    for place, parts in split.items():
        key, value = kept[place]
        yield _line(key), f"{key.value}: YAML reads {','.join(parts)} in braces as two entries; write {value.value}"


def _drop_repeated(node: yaml.MappingNode) -> Iterator[tuple[int, str]]:
    """Yield an error for each key that occurs again, which PyYAML would silently use, and drop it."""
    first: dict[tuple[str, str], int] = {}
    kept: list[tuple[yaml.Node, yaml.Node]] = []
    for key, value in node.value:
        if isinstance(key, yaml.ScalarNode):
            if key.tag != _MERGE:
                # Pulumi reads every key as a string: 7 is '7'.
                key.tag = _TEXT
            line = first.setdefault((key.tag, key.value), _line(key))
            if any(key.value == other.value and key.tag == other.tag for other, _ in kept):
                yield _line(key), f"the key {key.value!r} is also in line {line}; remove one of them"
                continue
        kept.append((key, value))
    node.value = kept


def _line(node: yaml.Node) -> int:
    return node.start_mark.line + 1


def _step(node: yaml.Node | None, path: str) -> tuple[int, yaml.Node, str] | None:
    """Return the line of the first key of a path, its value, and the rest of the path. None: there is no such key."""
    if isinstance(node, yaml.SequenceNode):
        index = _INDEX.match(path)
        if index is None or int(index[1]) >= len(node.value):
            return None
        item = node.value[int(index[1])]
        return _line(item), item, path[index.end() :]
    entries = list(_with_swept(_entries(node)))
    # Names may contain dots, and sections may be written with or without the prefix.
    names = {name: entry for entry in entries for name in (entry[0].value.removeprefix(PREFIX), entry[0].value)}
    found = [name for name in names if re.match(rf"{re.escape(name)}(\.|\[|$)", path)]
    # A key may be misspelt, or the error may be one of several values.
    name = max(found, key=len) if found else nearest(re.split(r"[.\[,]", path, maxsplit=1)[0], names)
    if not name:
        return None
    key, value = names[name]
    rest = path[len(name) :] if found else path.partition(".")[2]
    return _line(key), value, rest.removeprefix(".")


def _with_swept(
    entries: Iterable[tuple[yaml.ScalarNode, yaml.Node]],
) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
    """Yield the entries of a mapping, and those of a job's sweep, which are settings of the job."""
    for key, value in entries:
        yield key, value
        if key.value == _SWEEP:
            yield from _entries(value)


def _entries(node: yaml.Node | None) -> Iterator[tuple[yaml.ScalarNode, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        if key.tag == _MERGE:
            for merged in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                yield from _entries(merged)
    yield from ((key, value) for key, value in node.value if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE)
