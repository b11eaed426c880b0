"""What the preflight found out about a job, as everybody else reads it: one object, JSON, and a folder of them.

Owns the result's form, the key that says which jobs share one, and the cache. Compiles nothing and knows no JAX:
`python -m workloads.preflight` writes what is read here.
"""

import hashlib
import os
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from workloads.spec import JobSpec, Spec

QUOTED_EFFICIENCY = 0.35
"""Of `StepEstimate.kernel_efficiency`: the estimate that stands for "the" step."""

_PACKAGES = ("jax", "libtpu", "optax")
"""Whose versions change the program."""

_SOURCES = ("preflight_result.py", "data/manifest.py", "spec/**/*.py", "training/**/*.py", "preflight/**/*.py")
"""Of the trainer's step and of what is found out about it, below `workloads/`."""

_IRRELEVANT = {
    "slices": {"min_count"},
    "training": {
        "steps",
        "seed",
        "save_every_steps",
        "save_every_minutes",
        "keep_checkpoints",
        "keep_every_steps",
        "evaluate_every_steps",
        "evaluation_batches",
        "start_minutes",
        "prepare_minutes",
        "read_once_from_replicas",
        "step_timeout_minutes",
        "max_skipped_steps",
        "max_rollbacks",
        "compare_hosts_every_steps",
        "compare_slices_every_steps",
        "profile_steps",
    },
}
"""Fields that change neither memory, traffic nor time of a step. Any other, a new one too, makes another key."""

_SECONDS_PER_DAY = 86400


class StepEstimate(Spec):
    """A step when attention kernels reach `kernel_efficiency` of the chip's peak, which only a TPU can tell."""

    kernel_efficiency: float
    seconds: float
    mfu: float
    tokens_per_second_per_chip: float


class BigArray(Spec):
    """One of the largest arrays in a device's memory."""

    what: str
    """The operation that makes it, or the part of the training state that it is."""
    shape: str
    gib: float


class Remedy(Spec):
    """A change of the job that was compiled, and what came of it."""

    change: str
    fits: bool
    peak_gib: float | None
    """What it needs, also where that does not fit; None when the compiler refused it."""
    seconds: float | None
    """Of the quoted estimate; None when it does not fit."""


class Alternative(Spec):
    """The same job with the other choice of `compile`."""

    compile: str
    fits: bool
    seconds: float | None
    """Step of the quoted estimate; None when it does not fit."""
    compile_cpu_seconds: float


class PreflightResult(Spec):
    """What one compilation for the job's chips told. Every time in it is an estimate."""

    key: str
    versions: dict[str, str]
    generation: str
    topology: str
    slices: int
    chips: int
    """Of all slices."""
    unsupported: str | None = None
    """Why there is no answer; all below is then None or empty."""
    fits: bool | None = None
    peak_gib: float | None = None
    """Of a step that fits, per device."""
    needed_gib: float | None = None
    """The same, or what the compiler says that a step which does not fit would need."""
    usable_gib: float | None = None
    """That the compiler lets a program have."""
    biggest_arrays: tuple[BigArray, ...] = ()
    """In memory when most of it is taken, whether the step fits or not."""
    remedies: tuple[Remedy, ...] = ()
    """Tried because the job does not fit, the best first."""
    steps: tuple[StepEstimate, ...] = ()
    ici_sent_bytes: dict[str, float] = {}
    """Per device and step, by collective; the same for DCN."""
    dcn_sent_bytes: dict[str, float] = {}
    dcn_exposed_seconds: float | None = None
    """What of the transfers between slices a replay of the schedule does not hide. Not part of `steps`."""
    attention: str | None = None
    """Which kernel the step was compiled with and why, where the job chooses one on its chips."""
    warnings: tuple[str, ...] = ()
    """What the compiler complained of, and what the estimate leaves out."""
    alternative: Alternative | None = None
    """`None` without `--compare-compile`, or where both choices compile the same program."""
    compile_wall_seconds: float | None = None
    compile_cpu_seconds: float | None = None

    @property
    def estimate(self) -> StepEstimate | None:
        """The one to quote."""
        return next((step for step in self.steps if step.kernel_efficiency == QUOTED_EFFICIENCY), None)


def tokens(spec: JobSpec) -> int:
    """That the job trains on in all its steps."""
    return spec.training.steps * spec.training.global_batch * spec.training.sequence_length


def tokens_per_day(result: PreflightResult, step: StepEstimate) -> float:
    """At the pace of `step`, without pauses."""
    return step.tokens_per_second_per_chip * result.chips * _SECONDS_PER_DAY


def versions() -> dict[str, str]:
    """Of the packages that change the program, without importing them."""
    return {package: _version(package) for package in _PACKAGES}


def preflight_key(spec: JobSpec) -> str:
    """What jobs have in common whose step is the same program: sizes, slices, compiler, versions, sources."""
    parts = spec.model_dump_json(include={"slices", "mesh", "model", "training"}, exclude=_IRRELEVANT)
    digest = hashlib.sha256(parts.encode())
    told = (versions(), _sources_digest(), sorted(spec.compiler_options.items()), sorted(spec.libtpu_args.items()))
    digest.update(repr(told).encode())
    return digest.hexdigest()


def cache_folder(environment: Mapping[str, str]) -> Path:
    """`$XDG_CACHE_HOME/tpu-multislice/preflight`, or the same below `~/.cache`."""
    base = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tpu-multislice" / "preflight"


def cached(spec: JobSpec, folder: Path) -> PreflightResult | None:
    """The result for the step of `spec`, if `folder` has one that can be read."""
    try:
        return PreflightResult.model_validate_json(_file(preflight_key(spec), folder).read_text())
    except (OSError, ValueError):
        return None


def cached_all(specs: Mapping[str, JobSpec], folder: Path) -> dict[str, PreflightResult]:
    """The results that `folder` has for these specifications, by the same names."""
    return {name: found for name, spec in specs.items() if (found := cached(spec, folder))}


def keep(result: PreflightResult, folder: Path) -> Path:
    """Write `result` where `cached` finds it; readers see all of it or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
        file.write(result.model_dump_json(indent=1))
    os.replace(file.name, _file(result.key, folder))
    return _file(result.key, folder)


def _file(key: str, folder: Path) -> Path:
    return folder / f"{key}.json"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


@cache
def _sources_digest() -> str:
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted({path for pattern in _SOURCES for path in root.glob(pattern)}):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
