"""The Go programs that the sandbox runs and the data that it copies from Go modules: their versions and paths.

Versions are only in the `go.mod` files in `tools`. A program is taken, in this order, from the user's cache folder
(keyed by the lock of its module, so clones share it), or from PATH or Pulumi's folder if it reports the right version.
`sandbox.builds` builds all others.
"""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.stack.command_lines import UserError
from infra.stack.project import CHECKOUT

TOOLS = CHECKOUT / "tools"

_VERSION_SECONDS = 30
"""Longest time that an installed program may take to print its version."""

_TAGS = ("osusergo", "grpcnotrace")
_OWN_TAGS = {"promql": ("remove_all_sd",)}
"""Build tags by folder in `tools/`. Prometheus is built without service discovery, which is most of its code."""


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
    """Arguments that print the version; None if the program has none, so PATH is not searched."""
    stamps: tuple[str, ...] = ()
    """Go variables that take the version at link time."""
    build_seconds: int = 0
    """CPU time of its build after the programs before it, with empty caches. Measured with Go 1.26 on two cores of a
    cloud machine; only the programs of the sandbox have it."""


KUBERNETES_STAMPS = ("k8s.io/component-base/version.gitVersion", "k8s.io/client-go/pkg/version.gitVersion")


OPERATORS = ("jobset", "kueue")
"""Programs with a Helm chart, which is in the same Go module as the program."""


def _kubernetes(name: str, version_command: tuple[str, ...], build_seconds: int) -> Program:
    package = f"k8s.io/kubernetes/cmd/{name}"
    return Program(name, "kubernetes", package, "k8s.io/kubernetes", version_command, KUBERNETES_STAMPS, build_seconds)


def _operator(name: str, module: str, build_seconds: int = 0) -> Program:
    go_module = f"sigs.k8s.io/{name}"
    package = go_module if name == "jobset" else f"{go_module}/cmd/{name}"
    return Program(name, module, package, go_module, None, (f"{go_module}/pkg/version.GitVersion",), build_seconds)


PROGRAMS = (
    Program(
        "pulumi",
        "pulumi",
        "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
        "github.com/pulumi/pulumi/pkg/v3",
        ("version",),
        ("github.com/pulumi/pulumi/sdk/v3/go/common/version.Version",),
        build_seconds=345,
    ),
    Program(
        "helm",
        "kubernetes",
        "helm.sh/helm/v3/cmd/helm",
        "helm.sh/helm/v3",
        ("version", "--short"),
        ("helm.sh/helm/v3/internal/version.version",),
        build_seconds=115,
    ),
    Program(
        "fake-gcs-server",
        "pulumi",
        "github.com/fsouza/fake-gcs-server",
        "github.com/fsouza/fake-gcs-server",
        None,
        build_seconds=15,
    ),
    Program(
        "etcd",
        "kubernetes",
        "go.etcd.io/etcd/server/v3",
        "go.etcd.io/etcd/server/v3",
        ("--version",),
        build_seconds=40,
    ),
    _kubernetes("kube-apiserver", ("--version",), build_seconds=205),
    _kubernetes("kube-controller-manager", ("--version",), build_seconds=75),
    _kubernetes("kube-scheduler", ("--version",), build_seconds=5),
    *(_operator(name, "kubernetes", build_seconds) for name, build_seconds in (("jobset", 13), ("kueue", 80))),
    _kubernetes("kubectl", ("version", "--client"), build_seconds=22),
)
"""All programs of the sandbox, in the order in which an `up` needs them. Helm shares the Go module of Kubernetes and
the GCS server that of Pulumi, so that the packages they have in common are compiled once."""

ENGINE = ("pulumi", "helm")
"""Names of the programs that a plan needs."""

PREVIOUS = tuple(_operator(name, f"previous/{name}") for name in OPERATORS)
"""The previous minor versions, for tests of upgrades. They are built only on request."""


@dataclass(frozen=True)
class Copy:
    """A folder or file of data in a Go module."""

    name: str
    """Path in the module."""
    tool: str
    """Folder in `tools/` whose lock names the version."""
    go_module: str


def chart_of(program: Program) -> Copy:
    """Return the Helm chart of one of the OPERATORS."""
    return Copy(f"charts/{program.name}", program.module, program.version_of)


AUTOSCALER_KINDS = Copy("config/crd", "kubernetes", "k8s.io/autoscaler/cluster-autoscaler/apis")
"""The kind ProvisioningRequest."""
MONITORING_KINDS = Copy("charts/operator/crds", "monitoring", "github.com/GoogleCloudPlatform/prometheus-engine")
"""The kinds of Managed Prometheus, which a GKE cluster has from the start."""
GKE_KINDS = (AUTOSCALER_KINDS, MONITORING_KINDS)

COPIES = (*(chart_of(program) for program in PROGRAMS if program.name in OPERATORS), *GKE_KINDS)


class ProgramsError(UserError):
    """Raised when a program can be neither found nor built. The message says why and what to do."""


def cache_folder() -> Path:
    """`$XDG_CACHE_HOME/tpu-multislice/programs`, or the same below `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tpu-multislice" / "programs"


def version_of(program: Program) -> str:
    """Return the program's version without the leading v."""
    return module_version(program.module, program.version_of)


def module_version(tool: str, go_module: str) -> str:
    """Return the version of a Go module that `tools/TOOL/go.mod` requires, without the leading v."""
    text = (TOOLS / tool / "go.mod").read_text()
    match = re.search(rf"^(?:require)?\s*{re.escape(go_module)} v(\S+)( //.*)?$", text, re.MULTILINE)
    if match is None:
        raise ProgramsError(f"tools/{tool}/go.mod must require {go_module}; restore the file")
    return match.group(1)


def build_flags(tool: str) -> tuple[str, ...]:
    """Return the flags of `go build`, which are part of the cache folder's key because they change the result.

    Without DWARF, which the linker drops anyway, a build takes a seventh less CPU time.
    """
    return ("-trimpath", "-gcflags=all=-dwarf=false", f"-tags={','.join((*_TAGS, *_OWN_TAGS.get(tool, ())))}")


def module_folder(tool: str) -> Path:
    """Return the cache folder for the builds of `tools/TOOL`, keyed by its lock."""
    digest = hashlib.sha256(" ".join(build_flags(tool)).encode())
    for name in ("go.mod", "go.sum"):
        digest.update((TOOLS / tool / name).read_bytes())
    return cache_folder() / f"{tool}-{digest.hexdigest()[:16]}"


def cached_path(program: Program) -> Path:
    """Return the path of the program once it is built."""
    return module_folder(program.module) / "bin" / program.name


def copied_path(copy: Copy) -> Path:
    """Return the path of the folder or file once it is copied."""
    return module_folder(copy.tool) / copy.name


@dataclass(frozen=True)
class Operator:
    """JobSet or Kueue in one version."""

    path: Path
    chart: Path
    """Folder of its Helm chart."""


@dataclass(frozen=True)
class Programs:
    """Paths of all programs."""

    paths: Mapping[str, Path]

    def path(self, name: str) -> Path:
        """Return the path of the program. Raises ProgramsError if it does not exist yet."""
        if name not in self.paths:
            raise ProgramsError(_not_built([name]))
        return self.paths[name]

    def operator(self, name: str, version: str | None) -> Operator:
        """Return the operator of that name and version; `None` is the newest version.

        Raises:
            ProgramsError: the sandbox does not have it. The message says what to do.
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
        # A plan needs only the chart.
        if not (found.chart.is_dir() and (found.path.is_file() or known[wanted] in PROGRAMS)):
            raise ProgramsError(f"{name} {wanted} is not built yet; build it with `python -m cli.programs --previous`")
        return found


def found(needed: Iterable[str] | None = None) -> Programs:
    """Return the programs that are already built.

    Raises:
        ProgramsError: a `needed` one (by default any) is missing. The message names them and the command that builds
            them.
    """
    paths = {program.name: path for program in PROGRAMS if (path := existing(program))}
    missing = [name for name in needed or [program.name for program in PROGRAMS] if name not in paths]
    missing += [copy.name for copy in COPIES if not copied_path(copy).exists()]
    if missing:
        raise ProgramsError(_not_built(missing))
    return Programs(paths)


def _not_built(names: Iterable[str]) -> str:
    return f"not built yet: {', '.join(names)}; build them with `make programs`"


def versions() -> dict[str, str]:
    """Return the version of each program, without the leading v, from the `go.mod` that names it."""
    return {program.name: version_of(program) for program in PROGRAMS}


def existing(program: Program) -> Path | None:
    """Return the path of the program in the cache folder, on PATH or in Pulumi's folder; None if it must be built."""
    if (cached := cached_path(program)).is_file():
        return cached
    return next((path for path in _installed(program) if _is_right(program, path)), None)


def _installed(program: Program) -> Iterator[Path]:
    pulumi_home = Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi")
    for folder in (*os.get_exec_path(), pulumi_home / "bin", Path.home() / ".pulumi" / "bin"):
        # Pulumi's Automation API takes only a program in a folder of this name.
        if program.name == "pulumi" and Path(folder).name != "bin":
            continue
        if path := shutil.which(program.name, path=str(folder)):
            yield Path(path)


def _is_right(program: Program, path: Path) -> bool:
    if program.version_command is None:
        return False
    command = [path, *program.version_command]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_VERSION_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return bool(re.search(rf"\bv?{re.escape(version_of(program))}(?![\w.-])", printed.stdout))
