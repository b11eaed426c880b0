"""Finds the programs that the sandbox runs, and has those built that are missing.

A program is taken, in this order, from the user's cache folder (keyed by the lock of its module, so
clones share it), from PATH when it reports the right version, or is built (`sandbox.builds`). Which
programs are started, and how, is no concern of this module.
"""

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.builds import Report, build, copy_folders
from sandbox.catalog import CHARTS, COPIES, PROGRAMS, Program, ProgramsError, cached_path, copied_folder, version_of


@dataclass(frozen=True)
class Programs:
    """Where each program and chart lies."""

    paths: Mapping[str, Path]
    charts: Mapping[str, Path]

    def path(self, name: str) -> Path:
        return self.paths[name]

    def chart(self, name: str) -> Path:
        """Folder of the Helm chart `name`."""
        return self.charts[name]


def prepare(report: Report) -> Programs:
    """All programs, built where they are missing.

    Raises:
        ProgramsError: no Go to build with, a build failed, or the cache folder cannot be written.
    """
    missing = [program for program in PROGRAMS if _existing(program) is None]
    if missing:
        build(missing, report)
    if not all(copied_folder(name).is_dir() for name in COPIES):
        copy_folders()
    return found()


def prepare_one(program: Program, report: Report) -> Path:
    """Where the program lies, built if it is missing.

    Raises:
        ProgramsError: no Go to build with, the build failed, or the cache folder cannot be written.
    """
    if _existing(program) is None:
        build([program], report)
    return _existing(program) or cached_path(program)


def found() -> Programs:
    """The programs that are there already.

    Raises:
        ProgramsError: some are missing; the message names them and the command that builds them.
    """
    paths = {program.name: _existing(program) for program in PROGRAMS}
    missing = [name for name, path in paths.items() if path is None]
    missing += [name for name in COPIES if not copied_folder(name).is_dir()]
    if missing:
        raise ProgramsError(f"not built yet: {', '.join(missing)}; build them with `make programs`")
    return Programs(
        {name: path for name, path in paths.items() if path is not None},
        {name: copied_folder(f"charts/{name}") for name in CHARTS},
    )


def versions() -> dict[str, str]:
    """Version of each program, without the leading v, from the `go.mod` that names it."""
    return {program.name: version_of(program) for program in PROGRAMS}


def _existing(program: Program) -> Path | None:
    cached = cached_path(program)
    return cached if cached.is_file() else _on_path(program)


def _on_path(program: Program) -> Path | None:
    path = shutil.which(program.name)
    if path is None or program.version_command is None:
        return None
    printed = subprocess.run([path, *program.version_command], capture_output=True, text=True, check=False)
    right = re.search(rf"\bv?{re.escape(version_of(program))}(?![\w.-])", printed.stdout)
    return Path(path) if right else None
