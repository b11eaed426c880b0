"""Finds and reads the files of a stack: its stack file and its settings of the policy pack."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import AliasPath, BaseModel, Field, ValidationError

from cli import stack_file
from cli.answer import Halt
from infra.project import CHECKOUT, STACKS, find_project
from infra.settings.errors import SettingsError
from infra.settings.schema import Environment

_KEY = f"{stack_file.PREFIX}environment"


class _Team(BaseModel):
    namespace: str


class Names(BaseModel):
    """Names that must be unique among the stacks of a project."""

    project: str = Field(validation_alias=AliasPath("cloud", "project"))
    cluster: str = Field(validation_alias=AliasPath("cluster", "name"))
    teams: Mapping[str, _Team]

    @property
    def namespaces(self) -> set[str]:
        return {team.namespace for team in self.teams.values()}


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

    def environment(self, name: str) -> Environment | None:
        """Return the section `environment` of the stack file. None: the file or the section does not exist."""
        path = self.stack(name)
        return environment_in(_config(path)) if path.is_file() else None

    def encryption(self, name: str) -> tuple[str, ...]:
        """Return the arguments that `pulumi stack init` needs to keep the key of the file's secrets."""
        provider = _content(self.stack(name)).get("secretsprovider")
        return (f"--secrets-provider={provider}",) if provider else ()

    def others(self) -> Iterator[tuple[str, Names]]:
        """Yield each stack whose file can be read, with its names."""
        for path in sorted(self.stacks.glob("Pulumi.*.yaml")):
            try:
                stack = stack_file.stack_name(path)
                config = stack_file.expanded(_config(path), stack)
                yield stack, Names.model_validate(stack_file.sections(config))
            except (SettingsError, ValidationError):
                continue  # An update of that stack reports its errors.

    def remove(self, name: str) -> None:
        self.stack(name).unlink(missing_ok=True)
        self.policy(name).unlink(missing_ok=True)


POLICY = CHECKOUT / "policy"
"""Folder of the program's policy pack."""
PACK_FILE = "PulumiPolicy.yaml"


def files_of_project() -> Files:
    """Return the folders of the project. Raise ProjectError if there is no project."""
    project = find_project()
    return Files(project / STACKS, project / "policy" / STACKS)


def policy_pack() -> Path:
    """Return the folder of the project's policy pack, which may have rules of its own, or of the program's."""
    own = find_project() / "policy"
    return own if (own / PACK_FILE).is_file() else POLICY


def environment_in(config: Mapping[str, object]) -> Environment | None:
    """Return the section `environment` of a configuration, or None without it. Raise ValidationError if it is wrong."""
    return Environment.model_validate(config[_KEY]) if _KEY in config else None


def _config(path: Path) -> dict[str, Any]:
    found = _content(path).get("config")
    return found if isinstance(found, dict) else {}


def _content(path: Path) -> dict[str, Any]:
    try:
        found = stack_file.loaded(path)
    except Halt:
        return {}
    return cast(dict[str, Any], found) if isinstance(found, dict) else {}
