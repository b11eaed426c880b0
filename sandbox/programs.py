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

from sandbox.builds import Report, build
from sandbox.catalog import (
    COPIES,
    OPERATORS,
    PREVIOUS,
    PROGRAMS,
    Copy,
    Program,
    ProgramsError,
    cached_path,
    chart_of,
    copied_path,
    version_of,
)

_BUILD_PREVIOUS = "python -m cli.programs --previous"


@dataclass(frozen=True)
class Operator:
    """JobSet or Kueue in one version."""

    path: Path
    chart: Path
    """Folder of its Helm chart."""


@dataclass(frozen=True)
class Programs:
    """Where each program lies."""

    paths: Mapping[str, Path]

    def path(self, name: str) -> Path:
        return self.paths[name]

    def operator(self, name: str, version: str | None) -> Operator:
        """The operator of that name and version; None: the newest version.

        Raises:
            ProgramsError: the sandbox does not have it; the message says what to do.
        """
        known = {version_of(program): program for program in (*PROGRAMS, *PREVIOUS) if program.name == name}
        if name not in OPERATORS:
            raise ProgramsError(f"the sandbox has no chart {name!r}; it has {', '.join(OPERATORS)}")
        wanted = next(iter(known)) if version is None else version.removeprefix("v")
        if wanted not in known:
            raise ProgramsError(
                f"chart {name}: the sandbox has versions {', '.join(known)}, got {wanted}; set one of them"
            )
        found = Operator(cached_path(known[wanted]), copied_path(chart_of(known[wanted])))
        if not (found.path.is_file() and found.chart.is_dir()):
            raise ProgramsError(f"{name} {wanted} is not built yet; build it with `{_BUILD_PREVIOUS}`")
        return found


def prepare(report: Report) -> Programs:
    """All programs, built where they are missing.

    Raises:
        ProgramsError: no Go to build with, a build failed, or the cache folder cannot be written.
    """
    missing = [program for program in PROGRAMS if _existing(program) is None]
    copies = [copy for copy in COPIES if not copied_path(copy).exists()]
    if missing or copies:
        build(missing, copies, report)
    return found()


def prepare_one(program: Program, report: Report) -> Path:
    """Where the program lies, built if it is missing.

    Raises:
        ProgramsError: no Go to build with, the build failed, or the cache folder cannot be written.
    """
    if _existing(program) is None:
        build([program], [], report)
    return _existing(program) or cached_path(program)


def prepare_copy(copy: Copy, report: Report) -> Path:
    """Where the data lies, copied from its Go module if it is missing.

    Raises:
        ProgramsError: no Go to fetch it with, or the cache folder cannot be written.
    """
    if not copied_path(copy).exists():
        build([], [copy], report)
    return copied_path(copy)


def prepare_previous(report: Report) -> None:
    """JobSet and Kueue as of the minor before, built where they are missing, for upgrades.

    Raises:
        ProgramsError: no Go to build with, a build failed, or the cache folder cannot be written.
    """
    missing = [program for program in PREVIOUS if not cached_path(program).is_file()]
    copies = [copy for copy in map(chart_of, PREVIOUS) if not copied_path(copy).exists()]
    if missing or copies:
        build(missing, copies, report)


def found() -> Programs:
    """The programs that are there already.

    Raises:
        ProgramsError: some are missing; the message names them and the command that builds them.
    """
    paths = {program.name: _existing(program) for program in PROGRAMS}
    missing = [name for name, path in paths.items() if path is None]
    missing += [copy.name for copy in COPIES if not copied_path(copy).exists()]
    if missing:
        raise ProgramsError(f"not built yet: {', '.join(missing)}; build them with `make programs`")
    return Programs({name: path for name, path in paths.items() if path is not None})


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
