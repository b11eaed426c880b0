"""Opens the run that an attempt works on, and records its manifest.

The layout below the storage path is:

    current.json                   the run that `resume` continues
    runs/<run>/manifest.json       specification, data, image, commit and versions of its first attempt, with the
                                   optimizer of its newest attempt and the newest kernels on each generation of
                                   chips
    runs/<run>/checkpoints/        see `checkpoint`
    runs/<run>/ledger/             see `multislice_run.records`
    runs/<run>/steps/              see `step_metrics`
    runs/<run>/tensorboard/        see `trackers`
    runs/<run>/placement/          see `workloads.report.mesh_text`
    runs/<run>/profiles/           see `profile`
    starts/, failures/             see `multislice_run.worlds` and `ending`
    writer.json                    see `writer`

The leader decides, and every process gets its decision. Later attempts may run on other slices or with another image,
so each checkpoint has the manifest of the attempt that saved it.
"""

import json
import os
import platform
import subprocess
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypedDict

from etils import epath

from multislice_run.records import numbered
from multislice_run.records.ledger import next_start, write_current, write_whole
from multislice_run.records.lines import Current, parse
from workloads.spec import CHANGEABLE, LIBTPU_VARIABLE, JobSpec, StorageSpec
from workloads.training.failures import InvalidSpec, first_line
from workloads.training.runtime import Processes

KERNEL_SETTINGS = ("attention", "expert_products")
"""Settings of the training section that choose a kernel. The manifest has the newest one on each kind of chips."""

RECORDED_PACKAGES = ("jax", "jaxlib", "libtpu", "flax", "optax", "orbax-checkpoint", "grain")

FIXED_TRAINING_FIELDS = (
    "global_batch",
    "sequence_length",
    "seed",
    "ignored_token",
    "document_end",
    "loss_on",
    "lora",
    "z_loss",
    "compute_dtype",
)
"""Fields of the training section that cannot change when a run resumes: they determine the rows of a step, which tokens
count, the types of the computation, and the arrays of a checkpoint."""

_REMOVED_TRAINING_FIELDS = ("lost_rows", "sync_every", "sync_fragments", "outer_learning_rate", "outer_momentum")
"""Fields of older training sections that made other batches or other arrays of a checkpoint."""


@dataclass(frozen=True)
class Run:
    """One run in storage and the number of this attempt, from 0."""

    id: str
    folder: epath.Path
    start: int
    manifest: dict[str, Any]

    @property
    def checkpoints(self) -> epath.Path:
        return self.folder / "checkpoints"

    @property
    def ledger(self) -> epath.Path:
        return self.folder / "ledger"

    @property
    def steps(self) -> epath.Path:
        return self.folder / "steps"

    @property
    def tensorboard(self) -> epath.Path:
        return self.folder / "tensorboard"

    @property
    def placement(self) -> epath.Path:
        return self.folder / "placement" / f"{self.start}.json"


class DataRecord(TypedDict):
    """Facts of the data in a manifest."""

    data_digest: str
    data_order: str
    datasets: list[dict[str, object]]


def manifest(
    spec: JobSpec,
    data: DataRecord,
    image: str | None,
    compiler_options: Mapping[str, Any],
    kernels: Mapping[str, str],
    frozen: str | None = None,
) -> dict[str, Any]:
    """Return the manifest of one attempt, which is enough to repeat it.

    `kernels` are those that it really uses, by setting of `training`; `frozen` is the digest of the weights that it
    trains adapters for.
    """
    facts = {
        "spec": spec.model_dump(),
        **{setting: {spec.slices.generation: kernel} for setting, kernel in kernels.items()},
        **({"frozen_weights": frozen} if frozen else {}),
        **data,
        "image": image,
        "commit": _commit(),
        "compiler_options": dict(compiler_options),
        "libtpu_args": os.environ.get(LIBTPU_VARIABLE),
        "versions": {
            "python": platform.python_version(),
            **{package: _version(package) for package in RECORDED_PACKAGES},
        },
    }
    return numbered(facts)


def open_run(spec: JobSpec, run_id: str, manifest: dict[str, Any], processes: Processes) -> Run:
    """Return the run that this attempt works on. It is the same in every process.

    Raises:
        InvalidSpec: the run in storage was trained with other settings (see FIXED_TRAINING_FIELDS) or on other data.
    """
    run, start, fault = processes.share("run", lambda: _decide(spec.storage, run_id, manifest))
    if fault:
        raise InvalidSpec(fault)
    return Run(run, epath.Path(spec.storage.path) / "runs" / run, start, manifest)


def _decide(spec: StorageSpec, run_id: str, manifest: dict[str, Any]) -> tuple[str, int, str | None]:
    """Return the run, the number of this attempt, and why it cannot begin."""
    storage = epath.Path(spec.path)
    run = _current(spec) or run_id
    folder = storage / "runs" / run
    fault = _record(folder / "manifest.json", manifest, spec.allow_changes)
    if not fault:
        write_current(storage, run)
    return run, next_start(folder / "ledger"), fault


def recorded_kernel(spec: StorageSpec, setting: str, generation: str) -> str | None:
    """Return the kernel for `setting` of `training` that the current run last used on chips of `generation`."""
    run = _current(spec)
    manifest = _earlier(epath.Path(spec.path) / "runs" / run / "manifest.json") if run else None
    if manifest is None:
        return None
    if setting in manifest or setting != "attention":
        return manifest.get(setting, {}).get(generation)
    # Runs from before the kernel was recorded have it in their specification.
    named = manifest["spec"]["training"].get("attention", "auto")
    return named if named != "auto" and recorded_spec(manifest).slices.generation == generation else None


def _current(spec: StorageSpec) -> str | None:
    """Return the run to resume, if any. If the file that names it is damaged, it is the one with the newest ledger."""
    storage = epath.Path(spec.path)
    path = storage / "current.json"
    if spec.existing_run != "resume" or not path.exists():
        return None
    try:
        return parse(Current, json.loads(path.read_text())).run
    except ValueError as error:
        newest = max(_last_written(storage / "runs"), default=(0.0, None))[1]
        print(f"{path} cannot be used: {error}; the newest run is {newest or 'not there'}", flush=True)
        return newest


def _last_written(runs: epath.Path) -> Iterator[tuple[float, str]]:
    """Yield when each run wrote its newest ledger, and its name."""
    for run in runs.iterdir() if runs.exists() else ():
        ledgers = run / "ledger"
        times = [float(path.stat().mtime) for path in ledgers.iterdir()] if ledgers.exists() else []
        yield max(times, default=0.0), run.name


def _earlier(path: epath.Path) -> dict[str, Any] | None:
    """Return the manifest of earlier attempts. `None` if there is none, or it is damaged, which is reported."""
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text())
        _identity(found)
        for setting in KERNEL_SETTINGS:
            if not isinstance(found.get(setting, {}), dict):
                raise TypeError(f"expected the kernels under {setting}, got {found[setting]!r}")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        print(f"{path} cannot be used: {first_line(error)}; it is written again", flush=True)
        return None
    return found


def _record(path: epath.Path, manifest: dict[str, Any], allowed: Collection[str]) -> str | None:
    """Write the manifest. If an earlier run cannot continue with it, return the reason.

    The manifest of an earlier run gets the new optimizer, with which its later attempts are compared, and the
    kernels, which they keep.
    """
    if earlier := _earlier(path):
        if fault := _conflict(earlier, manifest, allowed, path.parent.name):
            return fault
        now = {
            **earlier,
            "spec": {**earlier["spec"], "optimizer": manifest["spec"]["optimizer"]},
            # Old runs did not record these.
            "data_order": manifest["data_order"],
            **{name: earlier.get(name, {}) | manifest[name] for name in KERNEL_SETTINGS if name in manifest},
        }
        if earlier == now:
            return None
        manifest = now
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(manifest, indent=2) + "\n")
    return None


def _conflict(earlier: dict[str, Any], now: dict[str, Any], allowed: Collection[str], run: str) -> str | None:
    if removed := sorted(earlier["spec"]["training"].keys() & _REMOVED_TRAINING_FIELDS):
        names = ", ".join(f"training.{name}" for name in removed)
        return (
            f"run {run} cannot continue, because it was trained with {names}, which no longer exists;"
            " begin a new run with existing_run: new"
        )
    before, after = _identity(earlier), _identity(now)
    if after["initial_weights"] is None:
        # A run that has begun no longer needs its initial weights. Only different ones are a conflict.
        before["initial_weights"] = None
    if before["data.order"] is None or any(before[name] != after[name] for name in ("data.digest", "training.seed")):
        # The order was not recorded, or it differs only because rows or seed do.
        before["data.order"] = after["data.order"]
    changed = [name for name in after if before[name] != after[name] and name not in allowed]
    if not changed:
        return None
    changes = "; ".join(f"{name}: expected {before[name]}, got {after[name]}" for name in changed)
    if "data.order" in changed:
        shuffles = [f"grain {found['versions']['grain']} of {found['image']}" for found in (earlier, now)]
        changes += f" (the same seed gives another order of rows with {shuffles[1]} than with {shuffles[0]})"
    optional = all(name in CHANGEABLE for name in changed)
    allow = f", allow the change with allow_changes: [{', '.join(changed)}] in the stack file," if optional else ""
    return (
        f"run {run} cannot continue with other settings than it began with: {changes};"
        f" restore them{allow} or begin a new run with existing_run: new"
    )


def _identity(manifest: dict[str, Any]) -> dict[str, object]:
    """Return the settings that must not change between attempts of one run. Slices, mesh, length and saves may."""
    spec = recorded_spec(manifest)
    sections = {
        "model": dict(spec.model) | spec.model.model_dump(),
        "optimizer": dict(spec.optimizer),
        "training": {name: getattr(spec.training, name) for name in FIXED_TRAINING_FIELDS},
        "data": {"digest": manifest["data_digest"], "order": manifest.get("data_order")},
    }
    named = {f"{section}.{name}": value for section, values in sections.items() for name, value in values.items()}
    frozen = manifest.get("frozen_weights")
    # Adapters fit only these weights, but their path may change.
    return {**named, "initial_weights": spec.initial_weights if frozen is None else f"weights with the digest {frozen}"}


def recorded_spec(manifest: dict[str, Any]) -> JobSpec:
    """Return the specification in a manifest, without settings that no longer exist."""
    recorded: dict[str, Any] = manifest["spec"]
    training = {name: value for name, value in recorded["training"].items() if name not in _REMOVED_TRAINING_FIELDS}
    rest = {name: value for name, value in recorded.items() if name != "slice_failure"}
    return JobSpec.model_validate({**rest, "training": training})


def _version(package: str) -> str | None:
    """Return the version of a package. `None` if it is not installed, like libtpu on a workstation."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the commit of the checkout, with `-dirty` if it was edited. `None` in an image, which has a digest."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", root, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None
    except OSError:
        return None
