"""Builds the sandbox's programs with `go build`, one after another, into the user's cache folder.

A finished program is moved into place as a whole, so a repeated command resumes an interrupted build with the next
program. A lock on the module's folder serializes simultaneous builds.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from sandbox.programs import (
    COPIES,
    KUBERNETES_STAMPS,
    PREVIOUS,
    PROGRAMS,
    TOOLS,
    Copy,
    Program,
    Programs,
    ProgramsError,
    build_flags,
    cache_folder,
    cached_path,
    chart_of,
    copied_path,
    existing,
    found,
    module_folder,
    module_version,
    version_of,
)

_POLL_SECONDS = 0.2
_ERROR_LINES_SHOWN = 5


@dataclass(frozen=True)
class BuildProgress:
    """One line of the progress display: program `name`, which is `index` of `total`, after `seconds`."""

    name: str
    index: int
    total: int
    seconds: float
    state: str
    """`building`, `waiting for another build`, or `built`."""


Report = Callable[[BuildProgress], None]


def prepare(report: Report) -> Programs:
    """Return all programs. Missing ones are built.

    Raises:
        ProgramsError: no Go to build with, a build failed, or the cache folder cannot be written.
    """
    missing = [program for program in PROGRAMS if existing(program) is None]
    copies = [copy for copy in COPIES if not copied_path(copy).exists()]
    if missing or copies:
        build(missing, copies, report)
    return found()


def prepare_one(program: Program, report: Report) -> Path:
    """Return the path of the program. It is built if it is missing.

    Raises:
        ProgramsError: no Go to build with, the build failed, or the cache folder cannot be written.
    """
    if existing(program) is None:
        build([program], [], report)
    return existing(program) or cached_path(program)


def prepare_copy(copy: Copy, report: Report) -> Path:
    """Return the path of the data. It is copied from its Go module if it is missing.

    Raises:
        ProgramsError: Go is missing, or the cache folder cannot be written.
    """
    if not copied_path(copy).exists():
        build([], [copy], report)
    return copied_path(copy)


def prepare_previous(report: Report) -> None:
    """Build JobSet and Kueue in the previous minor version, for tests of upgrades.

    Raises:
        ProgramsError: no Go to build with, a build failed, or the cache folder cannot be written.
    """
    missing = [program for program in PREVIOUS if not cached_path(program).is_file()]
    copies = [copy for copy in map(chart_of, PREVIOUS) if not copied_path(copy).exists()]
    if missing or copies:
        build(missing, copies, report)


def build(missing: Sequence[Program], copies: Sequence[Copy], report: Report) -> None:
    """Build the `missing` programs and copy the data in `copies`.

    Raises:
        ProgramsError: no Go to build with, a build failed, or the cache folder cannot be written.
    """
    _require_go([*(program.name for program in missing), *(copy.name for copy in copies)])
    started = time.monotonic()
    for index, program in enumerate(missing, 1):

        def progress(state: str, program: Program = program, index: int = index) -> None:
            seconds = time.monotonic() - started
            report(BuildProgress(program.name, index, len(missing), seconds, state))

        with _writable_cache(), _lock(module_folder(program.module), progress):
            if not cached_path(program).is_file():
                _build(program, progress)
        progress("built")
    for copy in copies:
        with _writable_cache(), _lock(module_folder(copy.tool), lambda _: None):
            _copy_data(copy)


def _require_go(missing: Sequence[str]) -> None:
    if shutil.which("go") is None:
        raise ProgramsError(
            f"these programs are neither cached nor on PATH: {', '.join(missing)}. Building them needs Go 1.26 or newer"
            " on PATH, and it is missing; install it from go.dev/dl, or run `make train`, which needs no Go"
        )


@contextmanager
def _writable_cache() -> Generator[None]:
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise ProgramsError(
            f"cannot write to the cache folder {cache_folder()}: {error.strerror or error};"
            " free some space (about 3 GB for a first build), or set XDG_CACHE_HOME to a folder that can be written"
        ) from error


@contextmanager
def _lock(folder: Path, progress: Callable[[str], None]) -> Generator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "lock")
    while True:
        try:
            lock.acquire(timeout=_POLL_SECONDS)
            break
        except Timeout:
            progress("waiting for another build")
    try:
        yield
    finally:
        lock.release()


def _build(program: Program, progress: Callable[[str], None]) -> None:
    target = cached_path(program)
    target.parent.mkdir(exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    command = [
        "go",
        "build",
        *build_flags(program.module),
        "-ldflags",
        _link_flags(program),
        "-o",
        str(partial),
        program.package,
    ]
    _run_go(command, program, progress)
    partial.replace(target)


def _link_flags(program: Program) -> str:
    version = version_of(program)
    stamps = [f"-X {stamp}=v{version}" for stamp in program.stamps]
    if program.stamps is KUBERNETES_STAMPS:
        major, minor, _ = version.split(".")
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            stamps += [f"-X {package}.gitMajor={major}", f"-X {package}.gitMinor={minor}"]
    return " ".join(["-s -w", *stamps])


def _run_go(command: list[str], program: Program, progress: Callable[[str], None]) -> None:
    # Less garbage collection saves time, because each process of the compiler lives only for seconds.
    environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off", "GOGC": "400"}
    folder = TOOLS / program.module
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as build:
        errors: list[str] = []
        while True:
            progress("building")
            try:
                _, stderr = build.communicate(timeout=1)
                errors = stderr.strip().splitlines()
                break
            except subprocess.TimeoutExpired:
                continue
            except KeyboardInterrupt:
                build.terminate()
                raise
    if build.returncode:
        shown = [line for line in errors if not line.startswith("go: downloading")][-_ERROR_LINES_SHOWN:]
        raise ProgramsError(
            f"building {program.name} in tools/{program.module} failed with exit code {build.returncode}:\n  "
            + "\n  ".join(shown)
            + "\nrun the command again: finished programs are kept, and the build continues where it stopped"
        )


def _copy_data(copy: Copy) -> None:
    target = copied_path(copy)
    if target.exists():
        return
    command = ["go", "mod", "download", "-json", f"{copy.go_module}@v{module_version(copy.tool, copy.go_module)}"]
    listed = subprocess.run(command, cwd=TOOLS / copy.tool, capture_output=True, text=True, check=True)
    source, partial = Path(json.loads(listed.stdout)["Dir"]) / copy.name, target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    # The module cache is read-only; copies with its permissions could not be removed again.
    if source.is_file():
        shutil.copyfile(source, partial)
    else:
        shutil.copytree(source, partial, copy_function=shutil.copyfile)
        for folder in (partial, *(path for path in partial.rglob("*") if path.is_dir())):
            folder.chmod(0o755)
    partial.replace(target)
