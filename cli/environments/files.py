"""The files of a stack: its settings and its settings of the policy pack."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, ValidationError

from cli import stack_file
from cli.halt import Halt
from infra.settings.schema import Environment
from sandbox.daemon import CHECKOUT

_KEY = f"{stack_file.PREFIX}environment"


class _Place(BaseModel):
    project: str


class _Named(BaseModel):
    name: str


class _Team(BaseModel):
    namespace: str


class Names(BaseModel):
    """Names by which a stack is distinct in its project."""

    cloud: _Place
    cluster: _Named
    teams: Mapping[str, _Team]

    @property
    def namespaces(self) -> set[str]:
        """Namespaces of its teams."""
        return {team.namespace for team in self.teams.values()}


@dataclass(frozen=True)
class Files:
    """The folders of the files."""

    stacks: Path
    policies: Path

    def stack(self, name: str) -> Path:
        """Return the stack file."""
        return self.stacks / f"Pulumi.{name}.yaml"

    def policy(self, name: str) -> Path:
        """Return the file with levels and exceptions of the rules; without it no rule is checked."""
        return self.policies / f"{name}.json"

    def environment(self, name: str) -> Environment | None:
        """Return the section environment of the stack file; None if there is no file, or no such section."""
        path = self.stack(name)
        return environment_in(_config(path)) if path.is_file() else None

    def encryption(self, name: str) -> tuple[str, ...]:
        """Return the argument of `pulumi stack init` with the key of the file's secrets, or it drops the key."""
        provider = _content(self.stack(name)).get("secretsprovider")
        return (f"--secrets-provider={provider}",) if provider else ()

    def others(self) -> Iterator[tuple[str, Names]]:
        """Yield the names of all stacks whose files can be read, by stack."""
        for path in sorted(self.stacks.glob("Pulumi.*.yaml")):
            try:
                yield stack_file.stack_name(path), Names.model_validate(stack_file.sections(_config(path)))
            except ValidationError:
                continue  # An update of that stack reports what is wrong with it.

    def remove(self, name: str) -> None:
        """Remove the files of a stack."""
        self.stack(name).unlink(missing_ok=True)
        self.policy(name).unlink(missing_ok=True)


POLICY = CHECKOUT / "policy"
"""The policy pack."""
OURS = Files(CHECKOUT / "stacks", POLICY / "stacks")


def environment_in(config: Mapping[str, object]) -> Environment | None:
    """Return the section environment of a stack's configuration; None if there is none.

    Raises:
        ValidationError: it is not valid.
    """
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
