"""The one way in which a command ends early: a message for a person and an exit status."""

import os
import sys
from collections.abc import Callable

from sandbox.daemon import SandboxError
from sandbox.programs import ProgramsError
from workloads.terminal import inert

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells give it."""
UNREAD = 141
"""Exit status when the reader of the answer has gone, such as `head`; as shells give it."""


class Halt(Exception):
    """What was expected, what came, and what to do next."""

    def __init__(self, message: str, exit_status: int = 1) -> None:
        super().__init__(message)
        self.exit_status = exit_status


def exit_status(command: Callable[[], int]) -> int:
    """Run `command`; what ends it early goes to stderr as a message without a traceback."""
    try:
        status = command()
        # What is still to be written is part of the command.
        sys.stdout.flush()
    except (Halt, ProgramsError, SandboxError) as error:
        sys.stderr.write(inert(f"{error}\n"))
        return error.exit_status if isinstance(error, Halt) else 1
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        return INTERRUPTED
    except (BrokenPipeError, SystemExit):
        # Rich ends the program so when its reader has gone. Python would try to write the rest at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    return status
