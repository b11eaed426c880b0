"""The preflight's result, its key and its cache, and how its estimates compare with published measurements.

`python -m workloads.preflight` writes results and everything else reads them. Jobs with the same key share a result.
The comparison, in `calibration.yaml`, is shown next to every estimate. This module imports no JAX.
"""

import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path

import yaml

from workloads.spec import JobSpec, PositiveInt, Spec


class Recipe(Spec):
    """One published measurement."""

    generation: str
    topology: str
    """Topology of its one slice."""
    sequences_per_chip: PositiveInt
    published_seconds: float
    """Published seconds of a step."""
    estimated_seconds: float | None
    """Estimate for the published program at the quoted kernel efficiency. `None` if it does not compile any more."""

    @property
    def ratio(self) -> float | None:
        return None if self.estimated_seconds is None else self.estimated_seconds / self.published_seconds


class Calibration(Spec):
    """Recipes of one model and their source."""

    model: str
    sequence_length: PositiveInt
    source: str
    program: str
    """Program that was measured and compiled, which is not this project's."""
    recipes: tuple[Recipe, ...]


def load_calibration() -> Calibration:
    """Load `calibration.yaml`."""
    return Calibration.model_validate(yaml.safe_load((files(__package__) / "calibration.yaml").read_text()))


QUOTED_EFFICIENCY = 0.35
"""Value of `StepEstimate.kernel_efficiency` of the estimate that is quoted."""

_PACKAGES = ("jax", "libtpu", "optax")
"""Packages whose versions change the program."""

_SOURCES = ("preflight_result.py", "data/token_folder.py", "spec/**/*.py", "training/**/*.py", "preflight/**/*.py")
"""Sources below `workloads/` that determine the trainer's step or the result."""

_IRRELEVANT = {
    "slices": {"min_count"},
    "training": {
        "steps",
        "seed",
        "save_every_steps",
        "save_every_minutes",
        "keep_checkpoints",
        "keep_every_steps",
        "local_save_every_steps",
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
"""Fields that change neither memory, traffic nor time of a step. Every other field, even a new one, is in the key."""

_SECONDS_PER_DAY = 86400


class StepEstimate(Spec):
    """Estimate of a step if attention kernels reach `kernel_efficiency` of the peak, which only a TPU can show."""

    kernel_efficiency: float
    seconds: float
    mfu: float
    tokens_per_second_per_chip: float


def quoted(steps: Iterable[StepEstimate]) -> StepEstimate | None:
    """Return the estimate to quote. `None` if there is none."""
    return next((step for step in steps if step.kernel_efficiency == QUOTED_EFFICIENCY), None)


class BigArray(Spec):
    """One of the largest arrays in a device's memory."""

    what: str
    """Operation that makes it, or part of the training state."""
    shape: str
    gib: float


class Remedy(Spec):
    """A change of the job that was compiled, and its result."""

    change: str
    fits: bool
    peak_gib: float | None
    """Memory that it needs, even if it does not fit. `None` if the compiler refused it."""
    seconds: float | None
    """Seconds of a step in the quoted estimate. `None` if it does not fit."""


class Alternative(Spec):
    """Result of the same job with the other value of `compile`."""

    compile: str
    fits: bool
    seconds: float | None
    """Seconds of a step in the quoted estimate. `None` if it does not fit."""
    compile_cpu_seconds: float


class PreflightResult(Spec):
    """Result of one compilation for the job's chips. All times are estimates."""

    key: str
    versions: dict[str, str]
    generation: str
    topology: str
    slices: int
    chips: int
    """Number of chips of all slices."""
    unsupported: str | None = None
    """Reason why there is no answer. All following fields are then `None` or empty."""
    fits: bool | None = None
    peak_gib: float | None = None
    """Peak memory per device of a step that fits."""
    needed_gib: float | None = None
    """Memory per device that the step needs, even if it does not fit."""
    usable_gib: float | None = None
    """Memory per device that the compiler lets a program use."""
    biggest_arrays: tuple[BigArray, ...] = ()
    """Largest arrays in memory at its peak, even if the step does not fit."""
    remedies: tuple[Remedy, ...] = ()
    """Changes tried because the job does not fit, the best first."""
    steps: tuple[StepEstimate, ...] = ()
    ici_sent_bytes: dict[str, float] = {}
    """Bytes that a device sends over ICI in a step, by collective. `dcn_sent_bytes` has those over DCN."""
    dcn_sent_bytes: dict[str, float] = {}
    """Bytes that the compiled step hands over."""
    dcn_exposed_seconds: float | None = None
    """Seconds in which a step waits for other slices, because a replay of the schedule does not hide their transfers.
    Included in `steps`."""
    kernels: tuple[str, ...] = ()
    """Kernels that the step was compiled with and the reason, each that the job chooses on its chips."""
    warnings: tuple[str, ...] = ()
    """Warnings of the compiler, and what the estimate leaves out."""
    alternative: Alternative | None = None
    """Result with the other value of `compile`. `None` without `--compare-compile`, or if the program is the same."""
    compile_wall_seconds: float | None = None
    compile_cpu_seconds: float | None = None

    @property
    def estimate(self) -> StepEstimate | None:
        return quoted(self.steps)


def tokens(spec: JobSpec) -> int:
    """Return the number of tokens that the job trains on in all its steps."""
    return spec.training.steps * spec.training.global_batch * spec.training.sequence_length


def tokens_per_day(result: PreflightResult, step: StepEstimate) -> float:
    """Return the tokens per day at the pace of `step` without interruptions."""
    return step.tokens_per_second_per_chip * result.chips * _SECONDS_PER_DAY


def versions() -> dict[str, str]:
    """Return the versions of the packages that change the program, without importing them."""
    return {package: _version(package) for package in _PACKAGES}


def preflight_key(spec: JobSpec) -> str:
    """Return a key that is equal for jobs whose step is the same program.

    It covers sizes, slices, compiler options, versions and sources.
    """
    parts = spec.model_dump_json(include={"slices", "mesh", "model", "training"}, exclude=_IRRELEVANT)
    digest = hashlib.sha256(parts.encode())
    others = (versions(), _sources_digest(), sorted(spec.compiler_options.items()), sorted(spec.libtpu_args.items()))
    digest.update(repr(others).encode())
    return digest.hexdigest()


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return `$XDG_CACHE_HOME/tpu-multislice/preflight`, or the same below `~/.cache`."""
    base = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "tpu-multislice" / "preflight"


def cached(spec: JobSpec, folder: Path) -> PreflightResult | None:
    """Return the result for the step of `spec`, if `folder` has a readable one."""
    try:
        return PreflightResult.model_validate_json(_file(preflight_key(spec), folder).read_text())
    except (OSError, ValueError):
        return None


def cached_all(specs: Mapping[str, JobSpec], folder: Path) -> dict[str, PreflightResult]:
    """Return the results that `folder` has for these specifications, by the same names."""
    return {name: found for name, spec in specs.items() if (found := cached(spec, folder))}


def keep(result: PreflightResult, folder: Path) -> Path:
    """Write `result` atomically to the file that `cached` reads."""
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
