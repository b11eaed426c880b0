"""The command lines of `multislice` that messages advise, and the error that ends one."""

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

MAKE_VARIABLE = "MULTISLICE_MAKE"
"""Variable with the stack that the Makefile's `up` and `down` name, in which only these set it."""

FOR_MEMBERS = frozenset(
    ("status", "list", "logs", "explain", "report", "doctor", "submit", "render", "cancel", "profile")
)
"""Commands that need only a kubeconfig, so that members of a team can run them."""

OF_FILES = frozenset(("review", "preflight"))
"""Commands that read only the stack file, so that they have no option of an engine."""


class UserError(Exception):
    """Raised for what the user of a command has to correct. The message says what is wrong and what to do."""


DISTRIBUTION = "tpu-multislice"
"""Name of the package that pip installs."""


def installing(extra: str) -> str:
    """Return the command line that installs the packages of an extra."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def replacing(resource: str) -> tuple[str, str]:
    """Return the options of `up` that delete a resource of the stack and create it again."""
    return "--replace", f"**::{resource}"


def command_line(command: str, stack: str, *options: str) -> str:
    """Return the command line that runs a command of `multislice` on a stack, as this user would type it.

    After `make up` or `make down`, these two commands run by make as well, because `multislice` may not be on the PATH.
    """
    if command in ("up", "down") and os.environ.get(MAKE_VARIABLE) == stack:
        words = shlex.join(options)
        # The words may have quotes of their own.
        quoted = f'"{words}"' if "'" in words else shlex.quote(words)
        return f"make {command} ARGS={quoted}" if options else f"make {command}"
    return stored_command_line(command, stack, *options)


def stored_command_line(command: str, stack: str, *options: str) -> str:
    """Return the same for text that is stored in the cluster, which must not depend on who runs `up`."""
    return shlex.join(("multislice", command, "-s", stack, *options))


@dataclass(frozen=True)
class Reader:
    """The person who reads a message, and how they chose the stack."""

    stack: str
    """Empty: their cluster belongs to no stack."""
    options: str
    """Options with which their commands choose the stack, such as `-s dev --sandbox` or `--namespace team`."""
    engine_options: Sequence[str] = ()
    """Those options that choose the engine, such as `--sandbox`."""
    kubectl: str = "kubectl"
    """Beginning of their command lines of kubectl, which chooses the cluster."""

    @property
    def is_member(self) -> bool:
        """Return whether they have only a kubeconfig of a stack, as members of a team do."""
        return bool(self.stack) and not f"{self.options} ".startswith("-s ")

    def command(self, name: str, *words: str) -> str:
        """Return a command line of theirs with `words` before the options, or advice to ask the owner."""
        if self.is_member and name not in FOR_MEMBERS:
            command = shlex.join(("multislice", name, *words, "-s", self.stack))
            return f"ask the owner of stack {self.stack} to run: {command}"
        options = ("-s", self.stack or "STACK") if name in OF_FILES else shlex.split(self.options)
        return shlex.join(("multislice", name, *words, *options))

    def run(self, name: str) -> str:
        """Return the advice to run a command, or advice to ask the owner."""
        command = self.command(name)
        return command if command.startswith("ask ") else f"run: {command}"

    def up(self, *options: str) -> str:
        """Return the command line that deploys the stack, which only its owner can run."""
        return command_line("up", self.stack, *self.engine_options, *options)

    def run_up(self, *options: str) -> str:
        """Return the advice to deploy the stack, or advice to ask the owner."""
        run = f"run `{self.up(*options)}`"
        return f"ask the owner of stack {self.stack} to {run}" if self.is_member else run
