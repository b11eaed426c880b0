"""The folder of the sandbox that a command works on."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from cli.halt import Halt
from sandbox.site import Site, load

SANDBOX = Path(".sandbox")
"""The default of every command."""


def existing(root: Path) -> Site:
    """Return the sandbox in `root`.

    Raises:
        Halt: there is none.
    """
    if not (root / "site.json").exists():
        raise Halt(f"expected a sandbox in the folder {root}, found none; `make up` makes one")
    return load(root)


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
