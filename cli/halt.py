"""Ends a command early with a message and an exit status."""

import os
import sys
from collections.abc import Callable

from sandbox.daemon import SandboxError
from sandbox.programs import ProgramsError
from workloads.terminal import inert

INTERRUPTED = 130
"""Exit status after Ctrl-C, as in shells."""
UNREAD = 141
"""Exit status if the reader of the output, such as `head`, has closed the pipe, as in shells."""


class Halt(Exception):
    """Raised to end a command. The message says what was expected, what was found, and what to do next."""

    def __init__(self, message: str, exit_status: int = 1) -> None:
        super().__init__(message)
        self.exit_status = exit_status


def exit_status(command: Callable[[], int]) -> int:
    """Run `command` and return its exit status. Errors go to stderr as a message without a traceback."""
    try:
        status = command()
        # Flush here, so that an error in writing the rest counts as an error of the command.
        sys.stdout.flush()
    except (Halt, ProgramsError, SandboxError) as error:
        sys.stderr.write(inert(f"{error}\n"))
        return error.exit_status if isinstance(error, Halt) else 1
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        return INTERRUPTED
    except (BrokenPipeError, SystemExit):
        # Rich raises SystemExit if the reader has closed the pipe. Python would try to write the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    return status
