"""Where the stacks of environments live: what a backend of Pulumi can be asked and told.

Owns the commands of Pulumi that this takes. The user's own Pulumi runs the program as `pulumi up` would, in the
sandbox `sandbox.engine` runs it. No command changes which stack is selected.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, override

from cli.environments.files import POLICY, Files
from cli.halt import Halt, changing
from cli.sandbox_folder import existing
from sandbox import daemon, programs
from sandbox.daemon import CHECKOUT

_STACK = "pulumi:pulumi:Stack"
_PROVIDER = "pulumi:providers:"
_MOST_UPDATES = 100
"""That are asked for; Pulumi tells 10 otherwise, and failed destroys, one an hour, would hide when a stack began."""


class BackendError(Exception):
    """Pulumi refused or failed; the message is its own."""


@dataclass(frozen=True)
class Update:
    """An operation on a stack, as the backend remembers it."""

    kind: str
    """Pulumi's word, such as `update` or `destroy`."""
    result: str
    """`succeeded`, `failed` or `in-progress`."""
    began: datetime
    config: Mapping[str, object]
    """The stack file's at that time; secrets are left out."""


class Backend(Protocol):
    """The stacks of one project."""

    def names(self) -> Sequence[str]:
        """All of them."""
        ...

    def updates(self, name: str) -> Sequence[Update]:
        """Of a stack, the newest first."""
        ...

    def outputs(self, name: str) -> Mapping[str, Any]:
        """Of the last update that got so far."""
        ...

    def resources(self, name: str) -> Sequence[str]:
        """What stands, by name, without components and providers."""
        ...

    def up(self, name: str) -> None:
        """Make the stack if there is none, and carry its file out."""
        ...

    def restore(self, name: str) -> None:
        """Write the stack's file as the last update had it."""
        ...

    def destroy(self, name: str) -> None:
        """Destroy all that stands, jobs that run too."""
        ...

    def remove(self, name: str) -> None:
        """Forget a stack of which nothing stands."""
        ...


class PulumiBackend:
    """The user's own Pulumi, with whatever backend it is logged in to."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def names(self) -> Sequence[str]:
        with _understood("stack ls"):
            return [stack["name"].rpartition("/")[2] for stack in json.loads(self._ask("stack", "ls", "--json"))]

    def updates(self, name: str) -> Sequence[Update]:
        history = self._ask("stack", "history", "--json", f"--page-size={_MOST_UPDATES}", "--stack", name)
        with _understood("stack history"):
            return [
                Update(told["kind"], told["result"], datetime.fromisoformat(told["startTime"]), _plain(told["config"]))
                for told in json.loads(history)
            ]

    def outputs(self, name: str) -> Mapping[str, Any]:
        told = self._ask("stack", "output", "--json", "--stack", name)
        with _understood("stack output"):
            return dict(json.loads(told))

    def resources(self, name: str) -> Sequence[str]:
        told = self._ask("stack", "export", "--stack", name)
        with _understood("stack export"):
            state = json.loads(told)["deployment"] or {}
            return [
                f"{resource['type']} {resource['urn'].rpartition('::')[2]}"
                for resource in state.get("resources", [])
                if resource.get("custom") and not resource["type"].startswith((_STACK, _PROVIDER))
            ]

    def up(self, name: str) -> None:
        if name not in self.names():
            self._ask("stack", "init", name, "--no-select", *self._files.encryption(name))
        self._follow("up", "--yes", "--stack", name, *self._rules(name))

    def restore(self, name: str) -> None:
        self._ask("config", "refresh", "--force", "--stack", name)

    def destroy(self, name: str) -> None:
        self._follow("destroy", "--yes", "--stack", name)

    def remove(self, name: str) -> None:
        self._ask("stack", "rm", "--yes", name)

    def _rules(self, name: str) -> Sequence[str]:
        """What holds an update to the policy pack, as a preview of the stack is held to it."""
        settings = self._files.policy(name)
        return ("--policy-pack", str(POLICY), "--policy-pack-config", str(settings)) if settings.is_file() else ()

    def _ask(self, *arguments: str) -> str:
        """What a command prints."""
        return _printed(["pulumi", *arguments, "--non-interactive"], CHECKOUT, None)

    def _follow(self, *arguments: str) -> None:
        """A command that people watch; what it prints is no part of an answer."""
        command = ["pulumi", *arguments, "--non-interactive"]
        ended = subprocess.run(command, cwd=CHECKOUT, stdout=sys.stderr, check=False)
        if ended.returncode:
            raise BackendError(f"`{' '.join(command)}` failed; what it printed says why")


class SandboxBackend(PulumiBackend):
    """The sandbox in a folder, which runs."""

    def __init__(self, root: Path, files: Files) -> None:
        """Take the sandbox in `root`.

        Raises:
            Halt: there is none.
        """
        super().__init__(files)
        self._site = existing(root)
        self._programs = programs.found()

    @override
    def up(self, name: str) -> None:
        self._operate(lambda: self._engine(name).up(_ignore))

    @override
    def restore(self, name: str) -> None:
        from sandbox.engine import project_folder

        super().restore(name)
        written = self._files.stack(name)
        shutil.copyfile(project_folder(self._site) / "stacks" / written.name, written)

    @override
    def destroy(self, name: str) -> None:
        self._operate(lambda: self._engine(name).destroy(_ignore))

    @override
    def _ask(self, *arguments: str) -> str:
        from sandbox.engine import environment, project_folder

        pulumi = str(self._programs.path("pulumi"))
        variables = os.environ | environment(self._site)
        return _printed([pulumi, *arguments, "--non-interactive"], project_folder(self._site), variables)

    def _operate(self, operation: Callable[[], object]) -> None:
        from pulumi.automation import CommandError

        if daemon.running(self._site) is None:
            raise BackendError(f"the sandbox in {self._site.root} does not run; start it with `make up`")
        with changing(self._site):
            try:
                operation()
            except CommandError as error:
                raise BackendError(str(error)) from None

    def _engine(self, name: str) -> Any:
        # The Automation API takes a second to import.
        from sandbox.engine import Engine, PolicyPack

        settings = self._files.policy(name)
        policy = PolicyPack(POLICY, settings) if settings.is_file() else None
        return Engine(self._site, self._programs, self._files.stack(name), policy)


@contextmanager
def _understood(command: str) -> Generator[None]:
    """What is read within is what Pulumi printed.

    Raises:
        BackendError: it is not what Pulumi prints.
    """
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise BackendError(
            f"expected JSON from `pulumi {command}`, got something else ({error}); run it to see what it prints:"
            " a wrapper of pulumi, such as a version manager, may add lines of its own"
        ) from None


def _printed(command: Sequence[str], folder: Path, environment: Mapping[str, str] | None) -> str:
    try:
        ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        got = "found none" if isinstance(error, FileNotFoundError) else f"got: {error.strerror}"
        raise Halt(
            f"expected the program {command[0]} on the PATH, {got}; install Pulumi", options=", or use --engine sandbox"
        ) from None
    if ended.returncode:
        raise BackendError(f"`{' '.join(command)}` failed: {ended.stderr.strip() or ended.stdout.strip()}")
    return ended.stdout


def _plain(config: Mapping[str, Mapping[str, Any]]) -> dict[str, object]:
    """Structured values as they are, plain ones as text, secrets not at all."""
    return {
        key: value.get("objectValue", value.get("value")) for key, value in config.items() if not value.get("secret")
    }


def _ignore(_: object) -> None:
    """Takes an engine event."""
