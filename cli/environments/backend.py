"""Runs Pulumi commands on the stacks of environments, in the user's own backend or in that of the sandbox.

The user's own Pulumi runs the program as `pulumi up` would. In the sandbox, `sandbox.engine` runs it. No command
changes which stack is selected.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, override

from cli.environments.files import Files, policy_pack
from cli.sandbox_folder import lock_sandbox, stack_command
from infra.project import find_project
from infra.stacks import NO_RENEWAL, Renewal, Stacks, StacksError, explain_missing_program, explain_parse_errors
from sandbox import daemon, programs
from sandbox.site import start_command
from sandbox.stacks import SandboxStacks

_STACK = "pulumi:pulumi:Stack"
_PROVIDER = "pulumi:providers:"
_MOST_UPDATES = 100
"""Number of updates to request. Pulumi's default of 10 would hide a stack's first update behind failed destroys."""


@dataclass(frozen=True)
class Update:
    """An operation on a stack, from the history of the backend."""

    kind: str
    """Kind of the operation, such as `update` or `destroy`."""
    result: str
    """`succeeded`, `failed` or `in-progress`."""
    began: datetime
    config: Mapping[str, object]
    """Configuration in the stack file at that time, without secrets."""


class Backend:
    """The user's own Pulumi, with the backend that it is logged in to."""

    def __init__(self, files: Files, stacks: Stacks) -> None:
        self._files = files
        self._stacks = stacks

    def names(self) -> Sequence[str]:
        return self._stacks.names()

    def command(self, command: str, name: str) -> str:
        """Return the command line that runs a command of `multislice` on a stack of this backend."""
        return stack_command(command, name, self._stacks.sandbox)

    def updates(self, name: str) -> Sequence[Update]:
        """Return the updates of a stack, newest first."""
        history = self._stacks.ask("stack", "history", "--json", f"--page-size={_MOST_UPDATES}", "--stack", name)
        with explain_parse_errors("stack history"):
            return [
                Update(each["kind"], each["result"], datetime.fromisoformat(each["startTime"]), _plain(each["config"]))
                for each in json.loads(history)
            ]

    def outputs(self, name: str) -> Mapping[str, Any]:
        return self._stacks.outputs(name)

    def resources(self, name: str) -> Sequence[str]:
        """Return the resources of a stack, without components and providers."""
        exported = self._stacks.ask("stack", "export", "--stack", name)
        with explain_parse_errors("stack export"):
            state = json.loads(exported)["deployment"] or {}
            return [
                f"{resource['type']} {resource['urn'].rpartition('::')[2]}"
                for resource in state.get("resources", [])
                if resource.get("custom") and not resource["type"].startswith((_STACK, _PROVIDER))
            ]

    def up(self, name: str, renewal: Renewal = NO_RENEWAL, *, yes: bool = True) -> None:
        """Create the stack if it does not exist, and deploy its file under the rules of a preview.

        Pulumi asks for confirmation unless `yes`.
        """
        if name not in self.names():
            self._stacks.ask("stack", "init", name, "--no-select", *self._files.encryption(name))
        settings = self._files.policy(name)
        exceptions = ("--policy-pack-config", str(settings)) if settings.is_file() else ()
        pack = ("--policy-pack", str(policy_pack()), *exceptions)
        self._follow("up", "--stack", name, *renewal.options, *pack, yes=yes)

    def restore(self, name: str) -> None:
        """Write the stack file as it was in the last update."""
        self._stacks.ask("config", "refresh", "--force", "--stack", name)

    def destroy(self, name: str, *, yes: bool = True) -> None:
        """Destroy all resources. Pulumi asks for confirmation unless `yes`."""
        self._follow("destroy", "--stack", name, yes=yes)

    def remove(self, name: str) -> None:
        self._stacks.ask("stack", "rm", "--yes", name)

    def _follow(self, *arguments: str, yes: bool) -> None:
        """Run a command whose output goes to stderr, where the user can watch it."""
        command = ["pulumi", *arguments, *(("--yes", "--non-interactive") if yes else ())]
        with explain_missing_program("pulumi"):
            ended = subprocess.run(command, cwd=find_project(), stdout=sys.stderr, check=False)
        if ended.returncode:
            raise StacksError(f"`{' '.join(command)}` failed; its output says why")


class SandboxBackend(Backend):
    """The backend of a running sandbox."""

    def __init__(self, files: Files, stacks: SandboxStacks) -> None:
        super().__init__(files, stacks)
        self._site = stacks.site

    @override
    def up(self, name: str, renewal: Renewal = NO_RENEWAL, *, yes: bool = True) -> None:
        engine = self._engine(name)
        self._operate(lambda: engine.up(lambda _: None, replace=renewal.replace, refresh=renewal.refresh))

    @override
    def restore(self, name: str) -> None:
        from sandbox.engine import project_folder

        super().restore(name)
        written = self._files.stack(name)
        shutil.copyfile(project_folder(self._site) / "stacks" / written.name, written)

    @override
    def destroy(self, name: str, *, yes: bool = True) -> None:
        self._operate(lambda: self._engine(name).destroy(lambda _: None))

    def _operate(self, operation: Callable[[], object]) -> None:
        from pulumi.automation import CommandError

        if daemon.running(self._site) is None:
            raise StacksError(
                f"the sandbox in {self._site.root} is not running; start it with `{start_command(self._site.root)}`"
            )
        with lock_sandbox(self._site):
            try:
                operation()
            except CommandError as error:
                raise StacksError(str(error)) from None

    def _engine(self, name: str) -> Any:
        # The Automation API takes a second to import.
        from sandbox.engine import Engine, PolicyPack

        settings = self._files.policy(name)
        policy = PolicyPack(policy_pack(), settings if settings.is_file() else None)
        return Engine(self._site, programs.found(), self._files.stack(name), policy)


def _plain(config: Mapping[str, Mapping[str, Any]]) -> dict[str, object]:
    """Return the configuration without secrets, with plain values as text."""
    return {
        key: value.get("objectValue", value.get("value")) for key, value in config.items() if not value.get("secret")
    }
