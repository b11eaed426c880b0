"""Finds a stack file and reads it before a command starts anything."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import yaml

from cli.answer import Halt
from infra.project import STACKS, find_project
from infra.settings.errors import FieldError, SettingsError, nearest, show
from infra.settings.values import NAMESPACE

if TYPE_CHECKING:
    from infra.settings.stack import Settings

PREFIX = f"{NAMESPACE}:"
"""Prefix of the program's own keys in `config`."""
_ADVICE = "Nothing was started. Fix the file and run the command again"
_MOST_BYTES, _MOST_VALUES = 1 << 20, 100_000
"""Largest size of a stack file and its largest number of values. The largest useful file has thousands of values.

An alias counts as many values as its anchor has."""


_TEXT, _MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"


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


def stacks_folder() -> Path:
    """Return the folder of the project's stack files. Raise ProjectError if there is no project."""
    return find_project() / STACKS


def names(folder: Path | None = None) -> list[str]:
    """Return the stacks with a stack file in `folder`. Default: the folder of the project."""
    return sorted(stack_name(path) for path in (folder or stacks_folder()).glob("Pulumi.*.yaml") if path.is_file())


def find(stack: str, folder: Path | None = None) -> Path:
    """Return the stack file of `stack`. Raise Halt with all stacks if it is missing."""
    folder = folder or stacks_folder()
    path = folder / f"Pulumi.{stack}.yaml"
    if path.is_file():
        return path
    if path.is_dir() or path.is_symlink():
        kind = "a folder" if path.is_dir() else "a link to a file that does not exist"
        raise Halt(f"--stack must name a file, got {path}, which is {kind}; remove it or put a stack file there")
    known = names(folder)
    meant, choice = nearest(stack, known), ", ".join(known) or "(there are none)"
    raise Halt(
        f"{f'did you mean {meant}? ' if meant else ''}--stack must name a file {folder}/Pulumi.STACK.yaml,"
        f" got {stack!r}; choose one of: {choice}"
    )


def stack_name(path: Path) -> str:
    """Return the name of the stack of a file `Pulumi.STACK.yaml`."""
    return path.name.removeprefix("Pulumi.").removesuffix(".yaml")


def sections(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the program's own sections of a stack file's `config`, by name."""
    return {key.removeprefix(PREFIX): value for key, value in config.items() if key.startswith(PREFIX)}


def expanded(config: Mapping[str, Any], stack: str) -> dict[str, Any]:
    """Return `config` with sections in place of the values of a starter, if it has any.

    Raises:
        SettingsError: a value of the starter is missing or wrong.
    """
    from infra.settings.starter import expand

    found = expand(sections(config), stack)
    if found.faults:
        raise SettingsError(found.faults)
    if not found.derived:
        return dict(config)
    others = {key: value for key, value in config.items() if not key.startswith(PREFIX)}
    return others | {f"{PREFIX}{name}": value for name, value in found.sections.items()}


def peek(stack: str) -> dict[str, Any]:
    """Return the sections of a stack as written, without checking them. Empty if the file cannot be read."""
    try:
        return sections(content(find(stack))["config"])
    except Halt:
        return {}


def read(path: Path) -> "Settings":
    """Return the settings as the program will read them. Raise Halt with every error of them."""
    # These import Pulumi's SDK, which takes a second and which `down` does not need.
    from infra.settings.read import KEYS, read_values
    from infra.settings.starter import Starter
    from infra.settings.values import hide_encrypted

    config: dict[str, Any] = _written(path)["config"]
    faults = list(_find_unprefixed(config, KEYS.union(Starter.model_fields)))
    prefixed = {fault.path: fault.meant for fault in faults}
    whole = sections({prefixed.get(key, key): value for key, value in config.items()})
    try:
        settings = read_values({name: hide_encrypted(value) for name, value in whole.items()}, stack_name(path))
    except SettingsError as error:
        faults += error.errors
    else:
        if not faults:
            return settings
    raise Halt(f"{path}: {SettingsError(faults)}\n{_ADVICE}")


def _find_unprefixed(config: Mapping[str, object], known: frozenset[str]) -> Iterator[FieldError]:
    """Yield an error for each section whose prefix is missing or misspelt.

    The prefix distinguishes the program's keys from those of providers.
    """
    for key in config:
        prefix, _, name = str(key).rpartition(":")
        meant = f"{PREFIX}{name}"
        ours = not prefix or nearest(prefix, [PREFIX.removesuffix(":")])
        if name in known and ours and key != meant and meant not in config:
            yield FieldError(
                str(key), f"{PREFIX} before the name of a section", repr(key), f"rename it to {meant}", meant
            )


def content(path: Path) -> dict[str, Any]:
    """Return the content of a stack file, with sections in place of a starter.

    Raise Halt if it has no mapping `config`, or if its starter is wrong.
    """
    found = _written(path)
    try:
        return {**found, "config": expanded(found["config"], stack_name(path))}
    except SettingsError as error:
        raise Halt(f"{path}: {error}\n{_ADVICE}") from None


def _written(path: Path) -> dict[str, Any]:
    """Return the content of a stack file as it is. Raise Halt if it has no mapping `config`."""
    found = loaded(path)
    config = found.get("config") if isinstance(found, dict) else None
    if isinstance(config, dict):
        return cast(dict[str, Any], found)
    keys = [str(key) for key in cast(dict[object, object], found)] if isinstance(found, dict) else []
    got = f"config: {show(config)}" if "config" in keys else f"the keys {', '.join(keys)}" if keys else show(found)
    meant = "did you mean config? " if nearest("config", keys) and "config" not in keys else ""
    needed = "must be YAML with a mapping `config`"
    raise Halt(f"{meant}{path} {needed}, got {got}; see {stacks_folder()} for examples\n{_ADVICE}")


def loaded(path: Path, content: str = "a mapping `config`") -> object:
    """Return the content of a YAML file, even without settings, as `pulumi stack init` writes it.

    `content` is what an error says about the content that the file must have.

    Raise Halt if it does not exist, is not YAML, has a key twice, or is too large.
    """
    try:
        return _loaded(path)
    except OSError as error:
        got = "which does not exist" if isinstance(error, FileNotFoundError) else f"got: {error.strerror}"
        raise Halt(f"expected a YAML file with {content} at {path}, {got}") from None
    except RecursionError:
        raise Halt(f"{path} must be YAML, got mappings or lists that are nested too deeply\n{_ADVICE}") from None
    except (yaml.YAMLError, LookupError, AttributeError, ValueError) as error:
        # PyYAML does not check that a value matches its tag, such as `!!int`.
        raise Halt(f"{path} must be YAML with {content}, got: {error}\n{_ADVICE}") from None


def _loaded(path: Path) -> Any:
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"a file larger than {_MOST_BYTES >> 20} MiB, the limit for stack files")
    loader = _Loader(path.read_bytes())
    # PyYAML reads bytes here, so it does not know the file name that its errors contain.
    loader.name = path.name
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        mappings: list[yaml.MappingNode] = []
        if _size(node, {}, mappings) > _MOST_VALUES:
            raise ValueError(f"aliases that expand to more than {_MOST_VALUES} values; write out the values you need")
        if repeated := [line for each in mappings for line in _find_repeated(each)]:
            raise ValueError("; ".join(repeated))
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _size(node: yaml.Node, sizes: dict[int, int], mappings: list[yaml.MappingNode]) -> int:
    """Return the number of values in a node, and add its mappings. An alias has as many values as its anchor."""
    if id(node) not in sizes:
        sizes[id(node)] = _MOST_VALUES  # A node that contains itself has no finite size.
        children: list[yaml.Node] = list(node.value) if isinstance(node, yaml.SequenceNode) else []
        if isinstance(node, yaml.MappingNode):
            mappings.append(node)
            children = [child for pair in node.value for child in pair]
        sizes[id(node)] = 1 + sum(_size(child, sizes, mappings) for child in children)
    return sizes[id(node)]


def _find_repeated(node: yaml.MappingNode) -> Iterator[str]:
    """Yield an error for each key that occurs more than once, because PyYAML would silently use the last one."""
    lines: dict[tuple[str, str], list[int]] = {}
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode):
            if key.tag != _MERGE:
                # Pulumi reads every key as a string: 7 is '7'.
                key.tag = _TEXT
            lines.setdefault((key.tag, key.value), []).append(key.start_mark.line + 1)
    for (_, key), places in lines.items():
        if len(places) > 1:
            yield f"the key {key!r} more than once, in lines {' and '.join(map(str, places))}; remove all but one"
