"""Finds and locks the sandbox that a command uses."""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from cli import stack_file
from cli.answer import Halt
from infra.project import find_project
from sandbox.site import Site, load

DEFAULT = Path(".sandbox")
"""Folder of the sandbox in the folder of the project."""
_PROJECT = "sandbox"
"""Google Cloud project that the file of a stack for the sandbox names."""


def default_sandbox() -> Path:
    """Return the default folder of the sandbox. Raise ProjectError if there is no project."""
    return find_project() / DEFAULT


def is_of_sandbox(stack: str) -> bool:
    """Return whether the file of a stack is for the sandbox: its `cloud.project` is `sandbox`."""
    cloud = stack_file.peek(stack).get("cloud")
    return isinstance(cloud, Mapping) and cloud.get("project") == _PROJECT


def find_sandbox(root: Path) -> Site:
    """Return the sandbox in `root`. Raise Halt if there is none."""
    if not (root / "site.json").exists():
        raise Halt(f"expected a sandbox in the folder {root}, found none; `make up` creates one")
    return load(root)


@contextmanager
def lock_sandbox(site: Site) -> Generator[None]:
    """Lock the sandbox. Raise Halt with the pid of another command if that is changing it."""
    holder = site.root / "command.pid"
    lock = FileLock(site.root / "command.lock", is_singleton=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        pid = holder.read_text() if holder.exists() else "unknown"
        raise Halt(
            f"another `make up` or `make down` is changing the sandbox in {site.root} (pid {pid}).\n"
            "Run the command again when it has finished, or use another sandbox with --sandbox DIR"
        ) from None
    try:
        holder.write_text(str(os.getpid()))
        yield
    finally:
        holder.unlink(missing_ok=True)
        lock.release()
