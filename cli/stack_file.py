"""Finds the stack that the user has selected, its files in the project, and reads them before a command starts.

Pulumi stores what `pulumi stack select` has selected in `workspaces/PROJECT-SHA1-workspace.json` in its home folder,
where SHA1 is that of the path of `Pulumi.yaml` (pkg/workspace in Pulumi's sources): a stack for each backend in
`stacks`, and from older versions one for all backends in `stack`. This module does not run Pulumi.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import yaml

from cli.answer import Halt
from infra.stack.project import CHECKOUT, PROJECT_FILE, STACKS, find_project
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

    Raise SettingsError if a value of the starter is missing or wrong.
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
        _refuse(file, [*faults, *error.errors])
    if faults or file.errors:
        _refuse(file, faults)
    return settings


def _refuse(file: YamlFile, errors: Iterable[FieldError]) -> NoReturn:
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
            wanted = f"{PREFIX} before the name of a section"
            yield FieldError(str(key), wanted, repr(key), f"rename it to {meant}", meant)


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
    config = _mapping(found).get("config")
    if isinstance(config, dict):
        return file
    keys = [str(key) for key in _mapping(found)]
    got = f"config: {show(config)}" if "config" in keys else f"the keys {', '.join(keys)}" if keys else show(found)
    meant = "did you mean config? " if nearest("config", keys) and "config" not in keys else ""
    wanted = f"{meant}expected YAML with a mapping `config`, got {got}; see {stacks_folder()} for examples"
    raise Halt(f"{shown(path)}:{file.lines.find('config')}: {wanted}\n{ADVICE}")


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


STACK_VARIABLE = "MULTISLICE_STACK"


def default_stack(*, else_cluster: bool) -> str:
    """Return the stack that Pulumi has selected in the project. Raise Halt with the choices if it has none.

    `else_cluster`: whether the command also works on a cluster of a kubeconfig, without a stack.
    """
    if found := selected_stack(find_project(), os.environ):
        return found
    choices = ", ".join(names()) or "(there are none: create one with `multislice init`)"
    cluster = "for a cluster without a stack, pass --namespace, and --context or --kubeconfig; " if else_cluster else ""
    raise Halt(
        f"expected a stack: pass --stack, set {STACK_VARIABLE} or run `pulumi stack select`; {cluster}choose one of:"
        f" {choices}"
    )


def selected_stack(project: Path, environment: Mapping[str, str]) -> str | None:
    """Return the name of the stack that Pulumi has selected in the folder `project`. None: it has selected none."""
    name = environment.get("PULUMI_STACK") or _selected_in_workspace(project, environment)
    # Organization and project may precede it.
    return name.rpartition("/")[2] if isinstance(name, str) and name else None


def _selected_in_workspace(project: Path, environment: Mapping[str, str]) -> object:
    file = project / PROJECT_FILE
    key = hashlib.sha1(str(file).encode(), usedforsecurity=False).hexdigest()
    workspace = _read(_home(environment) / "workspaces" / f"{_described(file).get('name')}-{key}-workspace.json")
    return _mapping(workspace.get("stacks")).get(backend_url(project, environment) or "") or workspace.get("stack")


def backend_url(project: Path, environment: Mapping[str, str]) -> str | None:
    """Return the URL of the backend that Pulumi uses in the folder `project`. None: the user has not logged in."""
    return (
        environment.get("PULUMI_BACKEND_URL")
        or _mapping(_described(project / PROJECT_FILE).get("backend")).get("url")
        or _read(_home(environment) / "credentials.json").get("current")
    )


def _home(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("PULUMI_HOME") or Path.home() / ".pulumi")


def _described(file: Path) -> dict[str, Any]:
    return _mapping(yaml.safe_load(file.read_text()))


def _read(file: Path) -> dict[str, Any]:
    try:
        return _mapping(json.loads(file.read_text()))
    except (OSError, ValueError):
        return {}  # Pulumi itself reports a file that it cannot read.


def _mapping(value: object) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


@dataclass(frozen=True)
class Files:
    """Folders of stack files and policy settings."""

    stacks: Path
    policies: Path

    def stack(self, name: str) -> Path:
        return self.stacks / f"Pulumi.{name}.yaml"

    def policy(self, name: str) -> Path:
        """Return the path of the file with levels and exceptions of the rules. Without it no exception counts."""
        return self.policies / f"{name}.json"

    def encryption(self, name: str) -> tuple[str, ...]:
        """Return the arguments that `pulumi stack init` needs to keep the key of the file's secrets."""
        # `pulumi stack init` writes a file without settings.
        with suppress(Halt):
            file = opened(self.stack(name))
            if isinstance(file.content, Mapping) and not file.errors and file.content.get("secretsprovider"):
                return (f"--secrets-provider={file.content['secretsprovider']}",)
        return ()


POLICY = CHECKOUT / "policy"
"""Folder of the program's policy pack."""
PACK_FILE = "PulumiPolicy.yaml"


def files_of_project() -> Files:
    """Return the folders of the project. Raise ProjectError if there is no project."""
    return Files(stacks_folder(), find_project() / "policy" / STACKS)


def policy_pack() -> Path:
    """Return the folder of the project's policy pack, which may have rules of its own, or of the program's."""
    own = find_project() / "policy"
    return own if (own / PACK_FILE).is_file() else POLICY


def check_policy_file(path: Path) -> None:
    """Raise Halt with all errors of a stack's settings of the rules, each with its line.

    Pulumi refuses exceptions for a rule that is not in the pack, without naming the rule.
    """
    # The rules import Pulumi's SDK.
    from policy.exceptions import file_errors
    from policy.rules import ALL_POLICIES

    file = opened(path, "the settings of rules")
    errors = file_errors(file.content, ALL_POLICIES)
    found = [(file.lines.find(place), f"{place}: {text}" if place else text) for place, text in errors]
    if lines := file.ordered(found or _json_errors(path)):
        raise Halt("\n".join([*lines, f"{count_errors(len(lines))}. {ADVICE}"]))


def _json_errors(path: Path) -> list[tuple[int, str]]:
    """Return the line and the text of the error of a YAML file that is not JSON, which Pulumi reads."""
    try:
        json.loads(path.read_bytes())
    except json.JSONDecodeError as error:
        return [(error.lineno, f"expected JSON, got: {error.msg}")]
    return []
