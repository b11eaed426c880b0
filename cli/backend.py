"""Deploys and destroys stacks with the user's own Pulumi, in the backend that it is logged in to."""

import subprocess
import sys

from cli.project_files import Files, check_policy_file, policy_pack
from infra.cluster.stacks import Renewal, Stacks, StacksError, explain_missing_program
from infra.stack.project import find_project


class Backend:
    """The user's own Pulumi. No operation changes which stack is selected."""

    def __init__(self, files: Files, stacks: Stacks) -> None:
        self._files = files
        self._stacks = stacks

    def up(self, name: str, renewal: Renewal, *, yes: bool) -> None:
        """Create the stack if it does not exist, and deploy its file under the rules of a preview.

        Pulumi asks for confirmation unless `yes`.
        """
        if name not in self._stacks.names():
            self._stacks.ask("stack", "init", name, "--no-select", *self._files.encryption(name))
        settings = self._files.policy(name)
        exceptions: tuple[str, ...] = ()
        if settings.is_file():
            check_policy_file(settings)
            exceptions = ("--policy-pack-config", str(settings))
        pack = ("--policy-pack", str(policy_pack()), *exceptions)
        self._follow("up", "--stack", name, *renewal.options, *pack, yes=yes)

    def destroy(self, name: str, *, yes: bool) -> None:
        """Destroy all resources. Pulumi asks for confirmation unless `yes`."""
        self._follow("destroy", "--stack", name, yes=yes)

    def _follow(self, *arguments: str, yes: bool) -> None:
        """Run a command whose output goes to stderr, where the user can watch it."""
        command = ["pulumi", *arguments, *(("--yes", "--non-interactive") if yes else ())]
        with explain_missing_program("pulumi"):
            ended = subprocess.run(command, cwd=find_project(), stdout=sys.stderr, check=False)
        if ended.returncode:
            raise StacksError(f"`{' '.join(command)}` failed; its output says why")
