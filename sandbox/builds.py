"""Builds the sandbox's programs with `go build`, one after another, into the user's cache folder.

It also builds or copies what only the tests of this checkout need: ACTIONLINT, PROMTOOL, API_DOCUMENTS and PREVIOUS.

A finished program is moved into place as a whole, so a repeated command resumes an interrupted build with the next
program. A lock on the module's folder serializes simultaneous builds.

Every function raises ProgramsError if there is no Go to build with, a build fails, or the cache folder cannot be
written.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from infra.stack.project import CHECKOUT
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

ACTIONLINT = Program(
    "actionlint",
    "actionlint",
    "github.com/rhysd/actionlint/cmd/actionlint",
    "github.com/rhysd/actionlint",
    ("-version",),
)
"""Checks the workflows in `.github`."""

PROMTOOL = Program(
    "promtool",
    "promql",
    "github.com/prometheus/prometheus/cmd/promtool",
    "github.com/prometheus/prometheus",
    None,
)
"""Prometheus' own engine, for tests of the alerts."""

_APIS = {
    "artifactregistry": "v1",
    "billingbudgets": "v1",
    "compute": "v1",
    "container": "v1beta1",
    "iam": "v1",
    "monitoring": "v3",
    "storage": "v1",
}
API_DOCUMENTS = {
    api: Copy(f"{api}/{version}/{api}-api.json", "pulumi", "google.golang.org/api") for api, version in _APIS.items()
}
"""Google's descriptions of its APIs, with which tests compare the declared resources."""

_POLL_SECONDS = 0.2
_CORES_USED = 0.9
"""Part of the cores that a build uses on average, because linking uses only one."""
_MAX_CORES = 8
"""With more cores a build is hardly faster."""
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
    """Return all programs. Missing ones are built, in the order of PROGRAMS.

    An exception that `report` raises ends the build.
    """
    _build_missing(PROGRAMS, COPIES, report)
    return found()


def missing() -> list[Program]:
    """Return the programs of the sandbox that must be built."""
    return [program for program in PROGRAMS if existing(program) is None]


def expected_seconds(programs: Iterable[Program]) -> float:
    """Return about how long a build of these programs takes here with empty caches, without downloads."""
    cores = min(os.process_cpu_count() or 1, _MAX_CORES)
    return sum(program.build_seconds for program in programs) / cores / _CORES_USED


def prepare_one(program: Program, report: Report) -> Path:
    """Return the path of the program. It is built if it is missing."""
    _build_missing([program], [], report)
    return existing(program) or cached_path(program)


def prepare_copy(copy: Copy, report: Report) -> Path:
    """Return the path of the data. It is copied from its Go module if it is missing."""
    _build_missing([], [copy], report)
    return copied_path(copy)


def prepare_previous(report: Report) -> None:
    """Build JobSet and Kueue in the previous minor version, for tests of upgrades."""
    _build_missing(PREVIOUS, [chart_of(program) for program in PREVIOUS], report)


def _build_missing(programs: Iterable[Program], copies: Iterable[Copy], report: Report) -> None:
    missing = [program for program in programs if existing(program) is None]
    absent = [copy for copy in copies if not copied_path(copy).exists()]
    if (missing or absent) and shutil.which("go") is None:
        names = ", ".join(each.name for each in (*missing, *absent))
        or_train = ", or run `make train`, which needs no Go" if (CHECKOUT / "Makefile").is_file() else ""
        raise ProgramsError(
            f"these programs are neither cached nor on PATH: {names}. Building them needs Go 1.26 or newer"
            f" on PATH, and it is missing; install it from go.dev/dl{or_train}"
        )
    started = time.monotonic()

    def reporting(name: str, index: int) -> Callable[[str], None]:
        return lambda state: report(BuildProgress(name, index, len(missing), time.monotonic() - started, state))

    # First, because a plan needs the charts of programs that are built last.
    for copy in absent:
        with _locked_cache(copy.tool, reporting(copy.name, 0)):
            _copy_data(copy)
    for index, program in enumerate(missing, 1):
        progress = reporting(program.name, index)
        with _locked_cache(program.module, progress):
            if not cached_path(program).is_file():
                _build(program, progress)
        progress("built")


@contextmanager
def _locked_cache(tool: str, progress: Callable[[str], None]) -> Generator[None]:
    """Let only one process write to the cache folder of `tools/TOOL`."""
    folder = module_folder(tool)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "lock")
        while not lock.is_locked:
            try:
                lock.acquire(timeout=_POLL_SECONDS)
            except Timeout:
                progress("waiting for another build")
        try:
            yield
        finally:
            lock.release()
    except OSError as error:
        raise ProgramsError(
            f"cannot write to the cache folder {cache_folder()}: {error.strerror or error};"
            " free some space (about 3 GB for a first build), or set XDG_CACHE_HOME to a folder that can be written"
        ) from error


def _build(program: Program, progress: Callable[[str], None]) -> None:
    target = cached_path(program)
    target.parent.mkdir(exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    flags = [*build_flags(program.module), "-ldflags", _link_flags(program), "-o", str(partial)]
    _run_go(["go", "build", *flags, program.package], program, progress)
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
        errors = ""
        try:
            while build.returncode is None:
                progress("building")
                with suppress(subprocess.TimeoutExpired):
                    _, errors = build.communicate(timeout=1)
        except BaseException:
            build.terminate()
            raise
    if build.returncode:
        lines = [line for line in errors.strip().splitlines() if not line.startswith("go: downloading")]
        shown = lines[-_ERROR_LINES_SHOWN:]
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
