"""The files of a stack: its settings and what it asks of the policy pack.

Owns where they lie, and reading what tells stacks of a project apart without judging the rest. What settings mean is
`infra.settings`' affair.
"""

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
    """What a stack calls its own in its project."""

    cloud: _Place
    cluster: _Named
    teams: Mapping[str, _Team]

    @property
    def namespaces(self) -> set[str]:
        """Of its teams."""
        return {team.namespace for team in self.teams.values()}


@dataclass(frozen=True)
class Files:
    """The folders that hold them."""

    stacks: Path
    policies: Path

    def stack(self, name: str) -> Path:
        """The settings of a stack."""
        return self.stacks / f"Pulumi.{name}.yaml"

    def policy(self, name: str) -> Path:
        """Levels and exceptions of the rules; without such a file nothing is held to them."""
        return self.policies / f"{name}.json"

    def environment(self, name: str) -> Environment | None:
        """What the stack's file says of its end; None when there is no file, or no end."""
        path = self.stack(name)
        return environment_in(_config(path)) if path.is_file() else None

    def encryption(self, name: str) -> tuple[str, ...]:
        """How `pulumi stack init` is told what the file's secrets are encrypted with: without it, a key is dropped."""
        provider = _content(self.stack(name)).get("secretsprovider")
        return (f"--secrets-provider={provider}",) if provider else ()

    def others(self) -> Iterator[tuple[str, Names]]:
        """Names of all stacks whose files can be read, by stack."""
        for path in sorted(self.stacks.glob("Pulumi.*.yaml")):
            try:
                yield stack_file.stack_name(path), Names.model_validate(stack_file.sections(_config(path)))
            except ValidationError:
                continue  # Whoever brings that stack up is told what is wrong with it.

    def remove(self, name: str) -> None:
        """Remove what there is of a stack."""
        self.stack(name).unlink(missing_ok=True)
        self.policy(name).unlink(missing_ok=True)


POLICY = CHECKOUT / "policy"
"""The policy pack."""
OURS = Files(CHECKOUT / "stacks", POLICY / "stacks")


def environment_in(config: Mapping[str, object]) -> Environment | None:
    """The section of a stack's configuration.

    Raises:
        ValidationError: there is one, and it is not valid.
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
