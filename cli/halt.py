"""The one way in which a command ends early: a message for a person and an exit status.

Also keeps two commands from changing one sandbox at the same time.
"""

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from filelock import FileLock, Timeout

from sandbox.daemon import SandboxError
from sandbox.programs import ProgramsError
from sandbox.site import Site
from workloads.terminal import inert

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells give it."""
UNREAD = 141
"""Exit status when whoever reads the answer has gone, such as `head`; as shells give it."""


class Halt(Exception):
    """What was expected, what came, and what to do next."""

    def __init__(self, message: str, exit_status: int = 1, *, options: str = "") -> None:
        """`message` is shown as it is, and behind it in a terminal `options`, which name those of a command line."""
        super().__init__(message)
        self.exit_status = exit_status
        self.options = options


@contextmanager
def changing(site: Site) -> Generator[None]:
    """Be the only command that changes the sandbox.

    Raises:
        Halt: another one does; the message names its pid.
    """
    holder = site.root / "command.pid"
    lock = FileLock(site.root / "command.lock", is_singleton=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        pid = holder.read_text() if holder.exists() else "unknown"
        raise Halt(
            f"another `make up` or `make down` is changing the sandbox in {site.root} (pid {pid}).\n"
            "Wait until it has finished and run the command again, or use a sandbox of your own: --sandbox DIR"
        ) from None
    try:
        holder.write_text(str(os.getpid()))
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()


def exit_status(command: Callable[[], int]) -> int:
    """Run `command`; what ends it early goes to stderr as a message without a traceback."""
    try:
        status = command()
        # What is still to be written is part of the command.
        sys.stdout.flush()
    except (Halt, ProgramsError, SandboxError) as error:
        told, status = (error.options, error.exit_status) if isinstance(error, Halt) else ("", 1)
        sys.stderr.write(inert(f"{error}{told}\n"))
        return status
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        return INTERRUPTED
    except (BrokenPipeError, SystemExit):
        # Rich ends the program so when its reader has gone. What is left Python would try to write at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    return status
