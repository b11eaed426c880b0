"""Which run a start works on, and what is written down about it.

Owns the layout below the storage path:

    current.json                   {"run": id} of the run that `resume` goes on with
    runs/<run>/manifest.json       resolved specification, versions, data digest
    runs/<run>/checkpoints/        see `checkpoint`
    runs/<run>/ledger/             see `metrics`
    runs/<run>/steps/              see `step_metrics`
    runs/<run>/profiles/           see `profile`
    starts/, failures/             see `start_check` and `ending`

The leader decides, and every process gets its decision.
"""

import json
import platform
from dataclasses import dataclass
from importlib.metadata import version

from etils import epath

from workloads.spec import JobSpec
from workloads.training.failures import InvalidSpec
from workloads.training.runtime import Processes

RECORDED_PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "grain")

FIXED_TRAINING_FIELDS = ("global_batch", "sequence_length", "seed")
"""Fields of the training section that say which rows a step sees: a resumed run cannot change them."""


@dataclass(frozen=True)
class Run:
    """One run in storage and the ordinal of this start of it, from 0."""

    id: str
    folder: epath.Path
    start: int

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
    def profiles(self) -> epath.Path:
        """Folder of the profiles that were asked for."""
        return self.folder / "profiles"


def open_run(spec: JobSpec, run_id: str, data_digest: str, processes: Processes) -> Run:
    """The run that this start works on, the same in every process.

    Raises:
        InvalidSpec: the run in storage was trained with another model or on other data.
    """
    decision = json.loads(processes.share("run", _decide(spec, run_id, data_digest) if processes.leads else ""))
    if decision["fault"]:
        raise InvalidSpec(decision["fault"])
    return Run(decision["run"], epath.Path(spec.storage.path) / "runs" / decision["run"], decision["start"])


def _decide(spec: JobSpec, run_id: str, data_digest: str) -> str:
    storage = epath.Path(spec.storage.path)
    run = _current(storage) if spec.storage.existing_run == "resume" else None
    run = run or run_id
    folder = storage / "runs" / run
    manifest = _manifest(spec, data_digest)
    fault = _record(folder / "manifest.json", manifest)
    if not fault and _current(storage) != run:
        (storage / "current.json").write_text(json.dumps({"run": run}))
    return json.dumps({"run": run, "start": _next_start(folder / "ledger"), "fault": fault})


def _current(storage: epath.Path) -> str | None:
    path = storage / "current.json"
    return json.loads(path.read_text())["run"] if path.exists() else None


def _record(path: epath.Path, manifest: dict[str, object]) -> str | None:
    """Write the manifest of a new run; for an earlier one, what keeps it from going on."""
    if path.exists():
        return _conflict(json.loads(path.read_text()), manifest, path.parent.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(manifest, indent=2) + "\n")
    return None


def _conflict(earlier: dict[str, object], now: dict[str, object], run: str) -> str | None:
    before, after = _identity(earlier), _identity(now)
    changed = [f"{name} {before[name]} -> {after[name]}" for name in after if before.get(name) != after[name]]
    if not changed:
        return None
    return (
        f"run {run} cannot go on with other settings than it began with: {', '.join(changed)};"
        " restore them or set storage.existing_run: anew"
    )


def _identity(manifest: dict[str, object]) -> dict[str, object]:
    """What must not change between the starts of one run."""
    spec = JobSpec.model_validate(manifest["spec"])
    training = {name: getattr(spec.training, name) for name in FIXED_TRAINING_FIELDS}
    sections = {"model": spec.model.model_dump(), "training": training, "data": {"digest": manifest["data_digest"]}}
    return {f"{section}.{name}": value for section, values in sections.items() for name, value in values.items()}


def _manifest(spec: JobSpec, data_digest: str) -> dict[str, object]:
    return {
        "spec": spec.model_dump(),
        "data_digest": data_digest,
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in RECORDED_PACKAGES},
        },
    }


def _next_start(ledger: epath.Path) -> int:
    """One more than the latest start that left a ledger."""
    names = [path.name for path in ledger.iterdir()] if ledger.exists() else []
    return max((int(name.split("-")[0]) + 1 for name in names if name.endswith(".jsonl")), default=0)
