"""Finds and locks the sandbox that a command uses, and gives the options with which a command chooses it."""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cli import stack_file
from cli.answer import Halt
from infra.stack.command_lines import command_line
from infra.stack.project import find_project
from infra.stack.settings.values import PROJECT_OF_SANDBOX

if TYPE_CHECKING:
    from sandbox.site import Site

DEFAULT = Path(".sandbox")
"""Folder of the sandbox in the folder of the project."""


def default_sandbox() -> Path:
    """Return the default folder of the sandbox. Raise ProjectError if there is no project."""
    return find_project() / DEFAULT


def is_of_sandbox(stack: str) -> bool:
    """Return whether the file of a stack is for the sandbox: its `cloud.project` is `sandbox`."""
    cloud = stack_file.peek(stack).get("cloud")
    return isinstance(cloud, Mapping) and cloud.get("project") == PROJECT_OF_SANDBOX


def engine_options(stack: str, sandbox: Path | None) -> tuple[str, ...]:
    """Return the options with which a command finds a stack in the sandbox in a folder, or with the user's own Pulumi.

    `sandbox` is that folder. None: the user's own Pulumi has the stack.
    """
    if sandbox is None:
        return ("--engine", "pulumi") if is_of_sandbox(stack) else ()
    if sandbox.resolve() != default_sandbox().resolve():
        return "--sandbox", str(sandbox)
    return () if is_of_sandbox(stack) else ("--sandbox",)


def stack_command(command: str, stack: str, sandbox: Path | None, *options: str) -> str:
    """Return the command line that runs a command of `multislice` on a stack; `sandbox` as in `engine_options`."""
    return command_line(command, stack, *engine_options(stack, sandbox), *options)


@dataclass(frozen=True)
class StackOfSandbox:
    """A stack of the sandbox in a folder, for the commands that messages advise."""

    stack: str
    root: Path

    def up(self, *options: str) -> str:
        return stack_command("up", self.stack, self.root, *options)

    def down(self, *options: str) -> str:
        return stack_command("down", self.stack, self.root, *options)

    def logs(self, job: str) -> str:
        return stack_command("logs", self.stack, self.root, job)


def find_sandbox(root: Path, stack: str) -> "Site":
    """Return the sandbox in `root`, for a command on a stack. Raise Halt if there is no such sandbox."""
    # Commands on other stacks need nothing of the sandbox.
    from sandbox.site import load

    if not (root / "site.json").exists():
        stack_file.find(stack)
        create = stack_command("up", stack, root)
        raise Halt(f"expected a sandbox in the folder {root}, found none; `{create}` creates one")
    return load(root)


@contextmanager
def lock_sandbox(site: "Site", command: str) -> Generator[None]:
    """Lock the sandbox for a command of `multislice`. Raise Halt with the name and pid of another one that has it."""
    # Only commands that run an engine need it.
    from filelock import FileLock, Timeout

    holder = site.root / "command.txt"
    lock = FileLock(site.root / "command.lock", is_singleton=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        other = holder.read_text() if holder.exists() else "another command"
        raise Halt(
            f"{other} is using the sandbox in {site.root}.\n"
            "Run the command again when it has finished, or use another sandbox with --sandbox DIR"
        ) from None
    try:
        holder.write_text(f"`{command}` (pid {os.getpid()})")
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()
