"""Which run a start works on, and what is written down about it.

Owns the layout below the storage path:

    current.json                   {"run": id} of the run that `resume` goes on with
    runs/<run>/manifest.json       what its first start was: specification, data, image, commit, versions; but the
                                   optimizer of its newest start, and the newest attention kernel on each
                                   generation of chips
    runs/<run>/checkpoints/        see `checkpoint`
    runs/<run>/ledger/             see `metrics`
    runs/<run>/steps/              see `step_metrics`
    runs/<run>/tensorboard/        see `tensorboard`
    runs/<run>/placement/          see `workloads.report.placement`
    runs/<run>/profiles/           see `profile`
    starts/, failures/             see `start_check` and `ending`
    writer.json                    see `writer`

The leader decides, and every process gets its decision. Later starts may run on other slices or with another
image: each checkpoint holds the manifest of the start that saved it.
"""

import json
import os
import platform
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypedDict

from etils import epath

from workloads.spec import CHANGEABLE, LIBTPU_VARIABLE, JobSpec, Kernel, StorageSpec
from workloads.training.failures import InvalidSpec
from workloads.training.runtime import Processes

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
"""Fields of the training section that say which rows a step sees, what of them it learns, and in which numbers it
computes: a resume cannot change them."""


@dataclass(frozen=True)
class Run:
    """One run in storage and the ordinal of this start of it, from 0."""

    id: str
    folder: epath.Path
    start: int
    manifest: dict[str, Any]
    """Of this start."""

    @property
    def checkpoints(self) -> epath.Path:
        """Folder of Orbax."""
        return self.folder / "checkpoints"

    @property
    def ledger(self) -> epath.Path:
        """Folder of the ledgers of all starts and processes."""
        return self.folder / "ledger"

    @property
    def steps(self) -> epath.Path:
        """Folder of the metrics of each step."""
        return self.folder / "steps"

    @property
    def tensorboard(self) -> epath.Path:
        """Folder of the curves for TensorBoard."""
        return self.folder / "tensorboard"

    @property
    def placement(self) -> epath.Path:
        """Where devices and arrays are in this start."""
        return self.folder / "placement" / f"{self.start}.json"


class DataRecord(TypedDict):
    """What a manifest says of the data."""

    data_digest: str
    data_order: str
    datasets: list[dict[str, object]]


def manifest(
    spec: JobSpec,
    data: DataRecord,
    image: str | None,
    compiler_options: Mapping[str, Any],
    kernel: Kernel,
    frozen: str | None = None,
) -> dict[str, Any]:
    """What one start runs: enough to run it again. `kernel` is the attention kernel that it really computes with,
    `frozen` the digest of the weights that it trains adapters for."""
    return {
        "spec": spec.model_dump(),
        "attention": {spec.slices.generation: kernel},
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


def open_run(spec: JobSpec, run_id: str, manifest: dict[str, Any], processes: Processes) -> Run:
    """The run that this start works on, the same in every process.

    Raises:
        InvalidSpec: the run in storage was trained with other settings, see FIXED_TRAINING_FIELDS, or on other data.
    """
    decision = json.loads(processes.share("run", _decide(spec.storage, run_id, manifest) if processes.leads else ""))
    if decision["fault"]:
        raise InvalidSpec(decision["fault"])
    folder = epath.Path(spec.storage.path) / "runs" / decision["run"]
    return Run(decision["run"], folder, decision["start"], manifest)


def _decide(spec: StorageSpec, run_id: str, manifest: dict[str, Any]) -> str:
    storage = epath.Path(spec.path)
    run = _current(storage) if spec.existing_run == "resume" else None
    run = run or run_id
    folder = storage / "runs" / run
    fault = _record(folder / "manifest.json", manifest, spec.allow_changes)
    if not fault and _current(storage) != run:
        (storage / "current.json").write_text(json.dumps({"run": run}))
    return json.dumps({"run": run, "start": _next_start(folder / "ledger"), "fault": fault})


def recorded_kernel(spec: StorageSpec, generation: str) -> Kernel | None:
    """The attention kernel that the run which this start continues used last on chips of `generation`."""
    storage = epath.Path(spec.path)
    run = _current(storage) if spec.existing_run == "resume" else None
    path = storage / "runs" / (run or "") / "manifest.json"
    if run is None or not path.exists():
        return None
    manifest = json.loads(path.read_text())
    if "attention" in manifest:
        return manifest["attention"].get(generation)
    # Runs that are older than the record of the kernel named one in their specification.
    before = JobSpec.model_validate(manifest["spec"])
    named = manifest["spec"]["training"].get("attention", "auto")
    return named if named != "auto" and before.slices.generation == generation else None


def _current(storage: epath.Path) -> str | None:
    path = storage / "current.json"
    return json.loads(path.read_text())["run"] if path.exists() else None


def _record(path: epath.Path, manifest: dict[str, Any], allowed: Collection[str]) -> str | None:
    """Write the manifest of a new run; for an earlier one, what keeps it from going on.

    The manifest of an earlier run gets the new optimizer, which its later starts are compared with, and the attention
    kernel, which they keep.
    """
    if path.exists():
        earlier = json.loads(path.read_text())
        if fault := _conflict(earlier, manifest, allowed, path.parent.name):
            return fault
        now = {
            **earlier,
            "spec": {**earlier["spec"], "optimizer": manifest["spec"]["optimizer"]},
            # Runs did not always record these two.
            "data_order": manifest["data_order"],
            "attention": {**earlier.get("attention", {}), **manifest["attention"]},
        }
        if earlier == now:
            return None
        manifest = now
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(manifest, indent=2) + "\n")
    return None


def _conflict(earlier: dict[str, Any], now: dict[str, Any], allowed: Collection[str], run: str) -> str | None:
    before, after = _identity(earlier), _identity(now)
    if after["initial_weights"] is None:
        # They lie behind the run; only other ones would not be what the run began with.
        before["initial_weights"] = None
    if (
        before["data.order"] is None
        or before["data.digest"] != after["data.digest"]
        or before["training.seed"] != after["training.seed"]
    ):
        # Not recorded, or other only because rows or seed are.
        before["data.order"] = after["data.order"]
    changed = [name for name in after if before[name] != after[name] and name not in allowed]
    if not changed:
        return None
    told = "; ".join(f"{name}: expected {before[name]}, got {after[name]}" for name in changed)
    if "data.order" in changed:
        shuffles = [f"grain {found['versions']['grain']} of {found['image']}" for found in (earlier, now)]
        told += f" (rows of the same seed were shuffled by {shuffles[0]}, and would be otherwise by {shuffles[1]})"
    optional = all(name in CHANGEABLE for name in changed)
    allow = f", allow the change with allow_changes: [{', '.join(changed)}] in the stack file," if optional else ""
    return (
        f"run {run} cannot go on with other settings than it began with: {told};"
        f" restore them{allow} or begin a new run with existing_run: anew"
    )


def _identity(manifest: dict[str, Any]) -> dict[str, object]:
    """What must not change between the starts of one run; slices, mesh, length and saves may."""
    spec = JobSpec.model_validate(manifest["spec"])
    training = {name: getattr(spec.training, name) for name in FIXED_TRAINING_FIELDS}
    sections = {
        "model": dict(spec.model) | spec.model.model_dump(),
        "optimizer": dict(spec.optimizer),
        "training": training,
        "data": {"digest": manifest["data_digest"], "order": manifest.get("data_order")},
    }
    named = {f"{section}.{name}": value for section, values in sections.items() for name, value in values.items()}
    frozen = manifest.get("frozen_weights")
    # Adapters fit these weights and no others, but wherever they are.
    return {**named, "initial_weights": spec.initial_weights if frozen is None else f"weights with the digest {frozen}"}


def _version(package: str) -> str | None:
    """None where it is not installed, as libtpu on a desk."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Commit of the checkout that runs, `-dirty` when it was edited; None in an image, whose digest says it."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", root, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or None
    except OSError:
        return None


def _next_start(ledger: epath.Path) -> int:
    """One more than the latest start that left a ledger."""
    names = [path.name for path in ledger.iterdir()] if ledger.exists() else []
    return max((int(name.split("-")[0]) + 1 for name in names if name.endswith(".jsonl")), default=0)
