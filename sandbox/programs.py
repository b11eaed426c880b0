"""Finds or builds the programs that the sandbox runs: Kubernetes, etcd, JobSet, Kueue, Pulumi, Helm, GCS.

Each is a Go module named with its version in `tools/*/go.mod`. A program is taken, in this order,
from the user's cache folder (keyed by the lock of its module, so clones share it), from PATH when
it reports the right version, or is built with `go build`. Which programs are started, and how,
is no concern of this module.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

TOOLS = Path(__file__).parent.parent / "tools"

_BUILD_FLAGS = ("-trimpath", "-tags=osusergo,grpcnotrace")
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Program:
    """One program and the Go package it is built from."""

    name: str
    module: str
    """Folder in `tools/`."""
    package: str
    version_of: str
    """Go module whose version is the program's version."""
    version_command: tuple[str, ...] | None
    """Arguments that print the version; None when the program cannot tell, so PATH is not asked."""
    stamps: tuple[str, ...] = ()
    """Go variables that take the version at link time."""


_KUBERNETES_STAMPS = ("k8s.io/component-base/version.gitVersion", "k8s.io/client-go/pkg/version.gitVersion")


def _kubernetes(name: str, version_command: tuple[str, ...]) -> Program:
    package = f"k8s.io/kubernetes/cmd/{name}"
    return Program(name, "kubernetes", package, "k8s.io/kubernetes", version_command, _KUBERNETES_STAMPS)


PROGRAMS = (
    Program("etcd", "kubernetes", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3", ("--version",)),
    _kubernetes("kube-apiserver", ("--version",)),
    _kubernetes("kube-controller-manager", ("--version",)),
    _kubernetes("kube-scheduler", ("--version",)),
    _kubernetes("kubectl", ("version", "--client")),
    Program(
        "jobset",
        "kubernetes",
        "sigs.k8s.io/jobset",
        "sigs.k8s.io/jobset",
        None,
        ("sigs.k8s.io/jobset/pkg/version.GitVersion",),
    ),
    Program(
        "kueue",
        "kubernetes",
        "sigs.k8s.io/kueue/cmd/kueue",
        "sigs.k8s.io/kueue",
        None,
        ("sigs.k8s.io/kueue/pkg/version.GitVersion",),
    ),
    Program(
        "pulumi",
        "pulumi",
        "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
        "github.com/pulumi/pulumi/pkg/v3",
        ("version",),
        ("github.com/pulumi/pulumi/sdk/v3/go/common/version.Version",),
    ),
    Program(
        "helm",
        "helm",
        "helm.sh/helm/v3/cmd/helm",
        "helm.sh/helm/v3",
        ("version", "--short"),
        ("helm.sh/helm/v3/internal/version.version",),
    ),
    Program("fake-gcs-server", "gcs", "github.com/fsouza/fake-gcs-server", "github.com/fsouza/fake-gcs-server", None),
)

CHARTS = {"jobset": "sigs.k8s.io/jobset", "kueue": "sigs.k8s.io/kueue"}
"""Helm charts and the Go module that carries each in `charts/NAME`."""


class ProgramsError(RuntimeError):
    """A program can be neither found nor built; the message says why and what to do."""


@dataclass(frozen=True)
class BuildProgress:
    """One line of the progress display: program `name` is `index` of `total`, since `seconds`."""

    name: str
    index: int
    total: int
    seconds: float
    state: str
    """`building`, `waiting for another build`, or `built`."""


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


Report = Callable[[BuildProgress], None]


def prepare(report: Report) -> Programs:
    """All programs, built where they are missing.

    Raises:
        ProgramsError: no Go to build with, a build failed, or the cache folder cannot be written.
    """
    missing = [program for program in PROGRAMS if _existing(program) is None]
    if missing or not all(_chart_folder(name).is_dir() for name in CHARTS):
        _require_go(missing)
        _build_all(missing, report)
    return found()


def found() -> Programs:
    """The programs that are there already.

    Raises:
        ProgramsError: some are missing; the message names them and the command that builds them.
    """
    paths = {program.name: _existing(program) for program in PROGRAMS}
    missing = [name for name, path in paths.items() if path is None]
    missing += [f"chart {name}" for name in CHARTS if not _chart_folder(name).is_dir()]
    if missing:
        raise ProgramsError(f"not built yet: {', '.join(missing)}; build them with `make programs`")
    return Programs(
        {name: path for name, path in paths.items() if path is not None},
        {name: _chart_folder(name) for name in CHARTS},
    )


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/tpu-multislice/programs`, or the same below `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tpu-multislice" / "programs"


def versions() -> dict[str, str]:
    """Version of each program, without the leading v, from the `go.mod` that names it."""
    return {program.name: _version(program) for program in PROGRAMS}


def _version(program: Program) -> str:
    return _module_version(program.module, program.version_of)


def _module_version(tool: str, go_module: str) -> str:
    text = (TOOLS / tool / "go.mod").read_text()
    match = re.search(rf"^(?:require)?\s*{re.escape(go_module)} v(\S+)( //.*)?$", text, re.MULTILINE)
    if match is None:
        raise ProgramsError(f"tools/{tool}/go.mod must require {go_module}; restore the file")
    return match.group(1)


def _module_folder(tool: str) -> Path:
    digest = hashlib.sha256(" ".join(_BUILD_FLAGS).encode())
    for name in ("go.mod", "go.sum"):
        digest.update((TOOLS / tool / name).read_bytes())
    return cache_folder() / f"{tool}-{digest.hexdigest()[:16]}"


def _cached(program: Program) -> Path:
    return _module_folder(program.module) / "bin" / program.name


def _chart_folder(name: str) -> Path:
    return _module_folder("kubernetes") / "charts" / name


def _existing(program: Program) -> Path | None:
    cached = _cached(program)
    return cached if cached.is_file() else _on_path(program)


def _on_path(program: Program) -> Path | None:
    path = shutil.which(program.name)
    if path is None or program.version_command is None:
        return None
    printed = subprocess.run([path, *program.version_command], capture_output=True, text=True, check=False)
    right = re.search(rf"\bv?{re.escape(_version(program))}(?![\w.-])", printed.stdout)
    return Path(path) if right else None


def _require_go(missing: list[Program]) -> None:
    if shutil.which("go") is None:
        names = ", ".join(program.name for program in missing) or "charts"
        raise ProgramsError(
            f"these programs are neither cached nor on PATH: {names}. Building them needs Go 1.26 or newer on PATH,"
            " and there is none; install it from go.dev/dl, or run `make train`, which needs no Go"
        )


def _build_all(missing: list[Program], report: Report) -> None:
    started = time.monotonic()
    for index, program in enumerate(missing, 1):

        def progress(state: str, program: Program = program, index: int = index) -> None:
            seconds = time.monotonic() - started
            report(BuildProgress(program.name, index, len(missing), seconds, state))

        with _writable_cache(), _locked(_module_folder(program.module), progress):
            if not _cached(program).is_file():
                _build(program, progress)
        progress("built")
    with _writable_cache(), _locked(_module_folder("kubernetes"), lambda _: None):
        for name, go_module in CHARTS.items():
            _copy_chart(name, go_module)


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
def _locked(folder: Path, progress: Callable[[str], None]) -> Generator[None]:
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
    target = _cached(program)
    target.parent.mkdir(exist_ok=True)
    partial = target.with_name(f".{target.name}.partial")
    command = ["go", "build", *_BUILD_FLAGS, "-ldflags", _link_flags(program), "-o", str(partial), program.package]
    _run_go(command, program, progress)
    partial.replace(target)


def _link_flags(program: Program) -> str:
    version = _version(program)
    stamps = [f"-X {stamp}=v{version}" for stamp in program.stamps]
    if program.stamps is _KUBERNETES_STAMPS:
        major, minor, _ = version.split(".")
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            stamps += [f"-X {package}.gitMajor={major}", f"-X {package}.gitMinor={minor}"]
    return " ".join(["-s -w", *stamps])


def _run_go(command: list[str], program: Program, progress: Callable[[str], None]) -> None:
    environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
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
        told = [line for line in errors if not line.startswith("go: downloading")][-5:]
        raise ProgramsError(
            f"building {program.name} in tools/{program.module} failed with exit code {build.returncode}:\n  "
            + "\n  ".join(told)
            + "\nrun the command again: finished programs are kept, and the build goes on where it stopped"
        )


def _copy_chart(name: str, go_module: str) -> None:
    target = _chart_folder(name)
    if target.is_dir():
        return
    command = ["go", "mod", "download", "-json", f"{go_module}@v{_module_version('kubernetes', go_module)}"]
    listed = subprocess.run(command, cwd=TOOLS / "kubernetes", capture_output=True, text=True, check=True)
    partial = target.with_name(f".{name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    target.parent.mkdir(exist_ok=True)
    # The module cache is read-only; without this its copy could not be removed again.
    shutil.copytree(Path(json.loads(listed.stdout)["Dir"]) / "charts" / name, partial, copy_function=shutil.copyfile)
    for folder in (partial, *(path for path in partial.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    partial.replace(target)
