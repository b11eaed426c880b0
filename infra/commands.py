"""The command lines of `multislice` that messages advise."""

import os
import shlex

MAKE_VARIABLE = "MULTISLICE_MAKE"
"""Variable with the stack that the Makefile's `up` and `down` name, in which only these set it."""


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
