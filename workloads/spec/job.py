"""Specification of a training job."""

from collections.abc import Mapping
from math import ceil
from operator import not_
from pathlib import Path
from typing import Annotated, Literal, Self

import yaml
from pydantic import BeforeValidator, Field, model_validator

from workloads.spec.base import Spec
from workloads.spec.compiler import DEFAULT_VMEM_KIB, VMEM, CompilerSpec, Value
from workloads.spec.data import DataSpec
from workloads.spec.fit import kernel_faults, size_faults
from workloads.spec.model import ModelSpec, state_bytes
from workloads.spec.slices import MeshSpec, SliceSpec
from workloads.spec.training import OptimizerSetting, OptimizerSpec, TrackersSpec, TrainingSpec

_PRESETS = Path(__file__).parents[1] / "presets"


def present_word(existing_run: object) -> object:
    """Return what to do with an existing run in the present words. Earlier versions, and the JobSets that they made,
    have another one for `new`."""
    return "new" if existing_run == "anew" else existing_run


ExistingRun = Annotated[Literal["resume", "new"], BeforeValidator(present_word)]
"""What to do if there is an earlier run: continue it, or begin another one next to it."""


class StorageSpec(Spec):
    """Storage of checkpoints, ledgers and manifests."""

    path: str
    """Storage path, `gs://BUCKET/JOB` or a local folder. Runs are in `runs/<run id>` below it."""
    existing_run: ExistingRun
    """What to do if the path has an earlier run: `resume` continues it, `new` begins another one next to it."""
    allow_changes: Annotated[tuple[OptimizerSetting, ...], Field(exclude_if=not_)] = ()
    """Settings of the optimizer that may differ from those of the earlier run. All other settings must be the same."""


class JobSpec(Spec):
    """All settings of a job. The plan writes them; the trainer and the preflight read them."""

    name: str
    preset: str
    slices: SliceSpec
    mesh: MeshSpec
    model: ModelSpec
    data: DataSpec
    optimizer: OptimizerSpec
    training: TrainingSpec
    storage: StorageSpec
    initial_weights: str | None = None
    """Folder that `python -m workloads.weights import` or `python -m workloads.training.export` wrote, with its path on
    every host. A new run begins with these weights, and a run with `training.lora` reads them in each attempt. Default:
    weights are drawn from the seed."""

    trackers: Annotated[TrackersSpec, Field(exclude_if=TrackersSpec().__eq__)] = TrackersSpec()
    compiler: Annotated[CompilerSpec, Field(exclude_if=lambda compiler: compiler == CompilerSpec())] = CompilerSpec()

    @property
    def compiler_options(self) -> dict[str, Value]:
        """Return the options that the job's programs are compiled with for TPUs."""
        return self.compiler.options_for(self.slices)

    @property
    def vmem_kib(self) -> int:
        """Return the fast memory in KiB that one kernel of a TPU may use."""
        return int(self.compiler_options.get(VMEM, DEFAULT_VMEM_KIB))

    @property
    def libtpu_args(self) -> dict[str, Value]:
        """Return the arguments that libtpu starts with."""
        return self.compiler.libtpu_args_for(self.slices)

    @property
    def start_counts(self) -> range:
        """Return the numbers of slices that an attempt may start on."""
        return range(self.slices.fewest, self.slices.count + 1)

    @property
    def local_states_gib(self) -> int | None:
        """GiB for the two newest states of a host with `training.local_save_every_steps`. `None` without it.

        One of them is for records and the norm scales, which are not in the share of a host.
        """
        if self.training.local_save_every_steps is None:
            return None
        state = state_bytes(self.model, self.training.lora, self.optimizer)
        return ceil(2 * state * self.mesh.share_of_host(self.slices.devices_per_host) / 2**30) + 1

    def compiled_otherwise(self) -> Self | None:
        """Return the same job with the other value of `compile`. `None` if it compiles the same program."""
        choice = "full" if self.compiler.compile == "quick" else "quick"
        other = self.model_copy(update={"compiler": self.compiler.model_copy(update={"compile": choice})})
        return None if other.compiler_options == self.compiler_options else other

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        if faults := self._faults():
            raise ValueError("; ".join(faults))
        return self

    def on_slices(self, count: int) -> Self:
        """Return the same job on another number of slices.

        It has the same global batch on more or fewer replicas, and enough accumulation that a device holds no more
        sequences at once than before.

        Raises:
            ValueError: the job's sizes do not fit that many slices.
        """
        if count == self.slices.count:
            return self
        fewest = None if self.slices.min_count is None else count
        job = self.model_copy(
            update={
                "slices": self.slices.model_copy(update={"count": count, "min_count": fewest}),
                "mesh": self.mesh.model_copy(update={"replica": self.mesh.replica * count // self.slices.count}),
            }
        )
        rows, at_once = job.rows_per_device, self.rows_at_once
        # At least half as many rows at once as before, because small parts use a device less well.
        best = min(range(at_once, at_once // 2, -1), key=lambda size: self._computed(rows, size))
        training = self.training.model_copy(update={"accumulation": ceil(rows / best)})
        job = job.model_copy(update={"training": training})
        if faults := size_faults(job.slices, job.mesh, job.model, job.training):
            raise ValueError(f"on {count} of its {self.slices.count} slices: {'; '.join(faults)}")
        return job

    @property
    def rows_per_device(self) -> int:
        """Number of rows of a step on each device, or on each group of devices that share them."""
        return self.training.batch_rows(self.mesh.data_shards) // self.mesh.data_shards

    @property
    def rows_at_once(self) -> int:
        """Number of its rows of a step that each device computes at once. The last part may have fewer."""
        return self.training.part_rows(self.rows_per_device)

    @property
    def padding_rows(self) -> int:
        """Number of rows of a step in addition to the global batch. They are computed but have no effect."""
        computed = self._computed(self.rows_per_device, self.rows_at_once)
        return self.mesh.data_shards * computed - self.training.global_batch

    @property
    def padding(self) -> float:
        return self.padding_rows / (self.padding_rows + self.training.global_batch)

    def _computed(self, rows: int, at_once: int) -> int:
        """Return the number of rows that a device computes for `rows` rows.

        If weights are gathered once per step, one program computes all parts, so the last part is padded.
        """
        by_layer = self.training.gather_weights == "each-layer" and not self.training.lora
        return rows if by_layer else at_once * ceil(rows / at_once)

    def _faults(self) -> list[str]:
        sizes = size_faults(self.slices, self.mesh, self.model, self.training)
        faults = [*self._token_faults(), *kernel_faults(self.model, self.training.attention), *sizes]
        if self.training.lora and not self.initial_weights:
            faults.append("initial_weights must be the folder of the weights that training.lora adapts, got none")
        if self.training.lora and self.optimizer.kind != "adamw":
            faults.append(f"optimizer.kind must be adamw with training.lora, got {self.optimizer.kind}")
        return faults or self._elastic_faults()

    def _token_faults(self) -> list[str]:
        """Check that special tokens are in the vocabulary. Otherwise they would silently match nothing."""
        named = {name: getattr(self.training, name) for name in ("ignored_token", "document_end")}
        size = self.model.vocab_size
        return [
            f"training.{name} must be a token, below model.vocab_size ({size}), got {token}"
            for name, token in named.items()
            if token is not None and token >= size
        ]

    def _elastic_faults(self) -> list[str]:
        fewest, all_of_them = self.slices.min_count, self.slices.count
        if fewest is None:
            return []
        if fewest > all_of_them:
            return [f"slices.min_count must be at most slices.count ({all_of_them}), got {fewest}"]
        if self.mesh.replica % all_of_them:
            return [
                f"slices.min_count needs mesh.replica to be a multiple of slices.count ({all_of_them}), so that a"
                f" slice can be missing, got {self.mesh.replica}"
            ]
        return []


class Preset(Spec):
    """A job without its hardware, from a YAML file in `workloads/presets`."""

    model: ModelSpec
    data: DataSpec | None = None
    """Source of the tokens. Without it, the job must have its own."""
    optimizer: OptimizerSpec
    training: TrainingSpec

    def model_with(self, values: Mapping[str, object]) -> ModelSpec:
        """Return the model of the preset with these values changed.

        Raises:
            pydantic.ValidationError: the values do not describe a model.
        """
        return ModelSpec.model_validate(self.model.model_dump() | dict(values))


def preset_names() -> list[str]:
    """Return the names of the presets in the package, sorted."""
    return sorted(path.stem for path in _PRESETS.glob("*.yaml"))


def load_preset(name: str) -> Preset:
    """Return the preset `workloads/presets/<name>.yaml`.

    Raises:
        ValueError: no such preset. The message lists all presets.
    """
    if name not in preset_names():
        raise ValueError(f"{name!r} is not a preset; choose one of {', '.join(preset_names())}")
    text = (_PRESETS / f"{name}.yaml").read_text()
    return Preset.model_validate(yaml.safe_load(text))


Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Ed25519 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
"""A public key."""


Backend = Literal["direct", "pathways"]
"""How a program uses the chips. `direct`: it runs on every host and uses the host's chips. `pathways`: it runs once, on
the head, and uses the chips of all hosts through Pathways."""


class CallSpec(Spec):
    """All settings of a call. The calling machine writes them; `workloads.call` reads them on each host."""

    id: str
    """Name of the call and of its JobSet."""
    folder: str
    """Folder of the call's files, `gs://BUCKET/teams/NAMESPACE/calls/ID` or a local path."""
    manifest_sha256: Sha256
    """Hash of the file `manifest.json` in the folder, so that write access to the bucket cannot change what runs."""
    public_key: Ed25519
    """Public key that verifies the seals of the results, for the same reason. Only the hosts have the private key."""
    slices: SliceSpec
    backend: Backend = "direct"
    start_minutes: Annotated[float, Field(gt=0)]
    """Time limit in minutes from the first host's start until all hosts have joined and opened their devices."""
    check_slices: bool
    """Whether to check computation and communication of all devices first."""
    max_hours: Annotated[float, Field(gt=0)]
    """Time limit of the function on any host, in hours."""
    hang_minutes: Annotated[float, Field(gt=0)] | None
    """Time in minutes after which the call ends if the main threads of all hosts have run no Python in it."""
    return_minutes: Annotated[float, Field(gt=0)]
    """Time limit in minutes from the function's return on the first host to its return on the last one."""
