"""Finds a stack file and reads it before a command starts anything."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from cli.answer import Halt
from infra.stack.project import STACKS, find_project
from infra.stack.settings.errors import FieldError, SettingsError, count_errors, nearest, show
from infra.stack.settings.yaml_file import PREFIX, UnreadableError, YamlFile, read_yaml, shown

if TYPE_CHECKING:
    from infra.stack.settings.stack import Settings

ADVICE = "Nothing was started. Fix the file and run the command again"


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
    from infra.stack.settings.starter import expand

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
    from infra.stack.settings.read import KEYS, read_values
    from infra.stack.settings.starter import Starter
    from infra.stack.settings.values import hide_encrypted

    file = _written(path)
    config: dict[str, Any] = file.content["config"]
    faults = list(_find_unprefixed(config, KEYS.union(Starter.model_fields)))
    prefixed = {fault.path: fault.meant for fault in faults}
    whole = sections({prefixed.get(key, key): value for key, value in config.items()})
    try:
        settings = read_values({name: hide_encrypted(value) for name, value in whole.items()}, stack_name(path))
    except SettingsError as error:
        faults += error.errors
        _refuse(file, faults)
    if faults or file.errors:
        _refuse(file, faults)
    return settings


def _refuse(file: YamlFile, errors: Iterable[FieldError]) -> NoReturn:
    """Raise Halt with the errors of a stack file, in the order of their lines."""
    lines = file.report(errors, file.lines.below("config"))
    raise Halt("\n".join([*lines, f"{count_errors(len(lines))}. {ADVICE}"]))


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
    file = _written(path)
    if file.errors:
        _refuse(file, ())
    try:
        return {**file.content, "config": expanded(file.content["config"], stack_name(path))}
    except SettingsError as error:
        _refuse(file, error.errors)


def _written(path: Path) -> YamlFile:
    """Return a stack file as it is. Raise Halt if it has no mapping `config`."""
    file = opened(path)
    found = file.content
    config = found.get("config") if isinstance(found, dict) else None
    if isinstance(config, dict):
        return file
    keys = [str(key) for key in cast(dict[object, object], found)] if isinstance(found, dict) else []
    got = f"config: {show(config)}" if "config" in keys else f"the keys {', '.join(keys)}" if keys else show(found)
    meant = "did you mean config? " if nearest("config", keys) and "config" not in keys else ""
    line = file.lines.find("config")
    wanted = f"{meant}expected YAML with a mapping `config`, got {got}; see {stacks_folder()} for examples"
    raise Halt(f"{shown(path)}:{line}: {wanted}\n{ADVICE}")


def loaded(path: Path) -> object:
    """Return the content of a YAML file, even without settings, as `pulumi stack init` writes it.

    Raise Halt if it does not exist, is not YAML, has a key twice, or is too large.
    """
    file = opened(path)
    if file.errors:
        _refuse(file, ())
    return file.content


def opened(path: Path, content: str = "a mapping `config`") -> YamlFile:
    """Return a YAML file, which must have `content`. Raise Halt if it does not exist, is not YAML, or is too large."""
    return opened_by(read_yaml, path, content)


def opened_by[Read](read: Callable[[Path], Read], path: Path, content: str) -> Read:
    """Return what `read` finds in a YAML file, which must have `content`. Raise Halt as `opened`."""
    try:
        return read(path)
    except OSError as error:
        got = "which does not exist" if isinstance(error, FileNotFoundError) else f"got: {error.strerror}"
        raise Halt(f"expected a YAML file with {content} at {shown(path)}, {got}") from None
    except UnreadableError as error:
        place = f"{shown(path)}:{error.line}" if error.line else shown(path)
        raise Halt(f"{place}: expected YAML with {content}, got: {error}\n{ADVICE}") from None
