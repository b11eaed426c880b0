"""A backend in memory: stacks with what Pulumi remembers of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from cli.environments.backend import Backend, Update
from cli.environments.files import Files
from infra.stacks import NO_RENEWAL, Renewal, Stacks, StacksError


@dataclass
class Stack:
    """Of the backend."""

    updates: list[Update] = field(default_factory=list[Update])
    outputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    resources: list[str] = field(default_factory=list[str])
    stays: str = ""
    """Why a destroy fails; empty: it does not."""


@dataclass
class Remembered(Backend):
    """Stacks by name; the files are those of the machine that asks."""

    files: Files
    now: datetime
    stacks: dict[str, Stack] = field(default_factory=dict[str, Stack])
    refuses: str = ""
    """Why no stack can be made."""
    _stacks: Stacks = field(default_factory=Stacks)

    def names(self) -> Sequence[str]:
        return list(self.stacks)

    def updates(self, name: str) -> Sequence[Update]:
        return self.stacks[name].updates

    def outputs(self, name: str) -> Mapping[str, Any]:
        return self.stacks[name].outputs

    def resources(self, name: str) -> Sequence[str]:
        return self.stacks[name].resources

    def up(self, name: str, renewal: Renewal = NO_RENEWAL, *, yes: bool = True) -> None:
        if self.refuses:
            raise StacksError(self.refuses)
        stack = self.stacks.setdefault(name, Stack())
        stack.updates.insert(0, Update("update", "succeeded", self.now, config_of(self.files.stack(name))))
        stack.resources = ["gcp:storage/bucket:Bucket checkpoints"]

    def restore(self, name: str) -> None:
        self.files.stack(name).write_text(yaml.safe_dump({"config": dict(self.stacks[name].updates[0].config)}))

    def destroy(self, name: str, *, yes: bool = True) -> None:
        assert self.files.stack(name).exists(), "the engine reads the stack file"
        if self.stacks[name].stays:
            raise StacksError(self.stacks[name].stays)
        self.stacks[name].resources = []

    def remove(self, name: str) -> None:
        assert not self.stacks[name].resources
        del self.stacks[name]


def config_of(path: Path) -> dict[str, object]:
    """Return the content of `config` in a stack file."""
    return yaml.safe_load(path.read_text())["config"]
