"""The job specification that the Pulumi program writes and the trainer reads.

Owns every fact that crosses from the plan into the pod: model, data, optimizer, mesh, slices,
storage and the exit codes that travel back. Knows neither JAX nor Pulumi, so both sides can
import it.
"""

from enum import IntEnum
from importlib.resources import files
from typing import Annotated, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

JOB_SPEC_VARIABLE = "JOB_SPEC"
"""Environment variable of the pod that holds the JobSpec as JSON."""

RUN_ID_VARIABLE = "RUN_ID"
"""Environment variable that names this submission of the job (the JobSet's uid on a cluster)."""

IMAGE_VARIABLE = "IMAGE"
"""Environment variable with the container image and its digest, for the record; may be missing."""

START_VARIABLE = "JOB_RESTART_ATTEMPT"
"""Environment variable with the number of restarts before this start (JobSet's restart-attempt)."""

PositiveInt = Annotated[int, Field(gt=0)]


class ExitCode(IntEnum):
    """Why a host process ended; `infra.jobset` turns these into failure policy rules."""

    DONE = 0
    CRASH = 1
    """Unknown failure: restart, counts against `max_restarts`."""
    INVALID_SPEC = 20
    """The JobSpec or its data cannot work here: fail the job at once."""
    OUT_OF_MEMORY = 21
    """The step does not fit the chips: fail the job at once."""
    DIVERGED = 22
    """Loss or gradients stay not finite: fail the job at once."""
    BAD_HOST = 23
    """This host failed its checks: restart without using up `max_restarts`."""
    HANG = 24
    """No step finished in time, or not all hosts came: restart, counts."""
    NO_CHECKPOINT = 25
    """The run has checkpoints and none can be used: fail the job at once, for a restart would begin at step 0."""
    PEER_LOST = 134
    """SIGABRT: JAX aborts a host that lost another one, whose own end says why: restart, counts."""
    PREEMPTED = 143
    """SIGTERM: restart without using up `max_restarts`."""


class Spec(BaseModel):
    """Base of all specifications: immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ModelSpec(Spec):
    """A decoder-only transformer (GQA, RoPE, SwiGLU, RMSNorm)."""

    vocab_size: PositiveInt
    embed_dim: PositiveInt
    mlp_dim: PositiveInt
    layers: PositiveInt
    query_heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
    rope_base: Annotated[float, Field(gt=0)] = 10_000.0
    tied_embedding: bool = True

    @model_validator(mode="after")
    def _heads_group_evenly(self) -> Self:
        if self.query_heads % self.kv_heads:
            raise ValueError(f"query_heads must be a multiple of kv_heads ({self.kv_heads}), got {self.query_heads}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even for RoPE, got {self.head_dim}")
        return self


HeldOutFraction = Annotated[float, Field(gt=0, lt=0.5)]
"""Share of the rows, at the end of the file, kept for evaluation only."""


class StandardLibrarySpec(Spec):
    """The sources of the running Python's standard library, byte by byte: needs no download."""

    source: Literal["python-stdlib"]
    max_bytes: PositiveInt
    """Read at most this much text."""
    held_out_fraction: HeldOutFraction


class TokenFileSpec(Spec):
    """A folder that `python -m workloads.data prepare` made."""

    source: Literal["token-file"]
    path: str
    """The folder as every host sees it: a local path is mapped into memory, of `gs://BUCKET/FOLDER` a
    host reads the rows that it trains on and no others."""
    held_out_fraction: HeldOutFraction
    check: Literal["sample", "full"] = "sample"
    """How each start compares the file with its manifest, after its size: `sample` reads 256 KiB of it,
    `full` all of it on every host, which takes about a second for each GB and host."""


DataSpec = Annotated[StandardLibrarySpec | TokenFileSpec, Field(discriminator="source")]
"""Where the tokens come from."""


class OptimizerSpec(Spec):
    """AdamW with linear warm-up and cosine decay, clipped by global norm."""

    learning_rate: Annotated[float, Field(gt=0)]
    warmup_steps: Annotated[int, Field(ge=0)]
    weight_decay: Annotated[float, Field(ge=0)]
    beta1: Annotated[float, Field(gt=0, lt=1)]
    beta2: Annotated[float, Field(gt=0, lt=1)]
    clip_norm: Annotated[float, Field(gt=0)]


class TrainingSpec(Spec):
    """How long and how often."""

    steps: PositiveInt
    global_batch: PositiveInt
    """Sequences per step over all slices."""
    sequence_length: PositiveInt
    """Tokens per sequence."""
    seed: Annotated[int, Field(ge=0, lt=1 << 32)]
    """Of the first weights and of the order of rows."""
    save_every_steps: PositiveInt
    save_every_minutes: Annotated[float, Field(gt=0)] = 10.0
    """Save also when the last save is this long ago: the most work that a crash can cost."""
    keep_checkpoints: PositiveInt
    """Newest checkpoints that are kept; with 1, a damaged one leaves nothing to go back to."""
    keep_every_steps: PositiveInt | None = None
    """Also keep the checkpoint of every so many steps for good; None keeps the newest alone."""
    evaluate_every_steps: PositiveInt
    evaluation_batches: PositiveInt
    compute_dtype: Literal["float32", "bfloat16"]
    start_minutes: Annotated[float, Field(gt=0, le=60)] = 30
    """How long a host waits for all others to begin; slices may come up minutes apart."""
    prepare_minutes: Annotated[float, Field(gt=0)] = 60
    """How long compiling and restoring may take before the host counts as hung."""
    step_timeout_minutes: Annotated[float, Field(gt=0)] = 10
    """How long a step, with the save and evaluation after it, may take before the host counts as hung."""
    max_skipped_steps: Annotated[int, Field(ge=0)] = 10
    """Steps in a row whose loss or gradient is not finite, and which are skipped, before the job has diverged."""
    compare_hosts_every_steps: PositiveInt = 50
    """How often hosts compare their pace."""
    profile_steps: tuple[PositiveInt, PositiveInt] | None = None
    """First and last step to record with JAX's profiler; none when unset."""

    @model_validator(mode="after")
    def _profile_in_order(self) -> Self:
        if self.profile_steps and self.profile_steps[0] > self.profile_steps[1]:
            raise ValueError(f"profile_steps must be first and last step, in order, got {list(self.profile_steps)}")
        return self

    @model_validator(mode="after")
    def _kept_steps_are_saved(self) -> Self:
        if self.keep_every_steps and self.keep_every_steps % self.save_every_steps:
            raise ValueError(
                f"keep_every_steps must be a multiple of save_every_steps ({self.save_every_steps}),"
                f" got {self.keep_every_steps}"
            )
        return self


class Preset(Spec):
    """One runnable job, minus the hardware: the YAML files in `workloads/presets`."""

    model: ModelSpec
    data: DataSpec
    optimizer: OptimizerSpec
    training: TrainingSpec


class SliceSpec(Spec):
    """The TPU slices of the job, as the plan's accelerator table states them."""

    generation: str
    topology: str
    count: PositiveInt
    hosts: PositiveInt
    """Hosts per slice."""
    chips_per_host: PositiveInt
    devices_per_chip: PositiveInt
    """JAX devices per chip: 2 on 7x, else 1."""
    peak_bf16_tflops_per_chip: float
    hbm_gib_per_chip: float

    @property
    def devices_per_host(self) -> int:
        return self.chips_per_host * self.devices_per_chip

    @property
    def devices_per_slice(self) -> int:
        return self.hosts * self.devices_per_host

    @property
    def devices(self) -> int:
        return self.count * self.devices_per_slice


class MeshSpec(Spec):
    """Sizes of the mesh axes, outer to inner."""

    replica: PositiveInt
    """Data parallel over slices (DCN)."""
    fsdp: PositiveInt
    """Fully sharded data parallel within a slice (ICI)."""


class StorageSpec(Spec):
    """Where the job keeps checkpoints, ledger and manifest."""

    path: str
    """`gs://BUCKET/JOB` or a local folder; runs lie in `runs/<run id>` below it."""
    existing_run: Literal["resume", "anew"]
    """When the path holds an earlier run: go on with it, or begin a new one beside it."""


class JobSpec(Spec):
    """All that a host needs to train: written by the plan, read by the trainer and the preflight."""

    name: str
    preset: str
    slices: SliceSpec
    mesh: MeshSpec
    model: ModelSpec
    data: DataSpec
    optimizer: OptimizerSpec
    training: TrainingSpec
    storage: StorageSpec

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        faults = [*self._mesh_faults(), *self._batch_faults(), *self._weight_faults()]
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _mesh_faults(self) -> list[str]:
        faults: list[str] = []
        if self.mesh.replica * self.mesh.fsdp != self.slices.devices:
            faults.append(
                f"mesh: replica {self.mesh.replica} x fsdp {self.mesh.fsdp} must be the {self.slices.devices} devices"
                f" of {self.slices.count} slices; use replica {self.slices.count},"
                f" fsdp {self.slices.devices_per_slice}"
            )
        if self.mesh.replica % self.slices.count:
            faults.append(
                f"mesh.replica must be a multiple of the {self.slices.count} slices so that fsdp stays inside one,"
                f" got {self.mesh.replica}"
            )
        return faults

    def _batch_faults(self) -> list[str]:
        if self.training.global_batch % self.slices.devices:
            return [
                f"training.global_batch must be a multiple of the {self.slices.devices} devices,"
                f" got {self.training.global_batch}"
            ]
        return []

    def _weight_faults(self) -> list[str]:
        """Every matrix is split on its first dimension over fsdp."""
        rows = {
            "vocab_size": self.model.vocab_size,
            "embed_dim": self.model.embed_dim,
            "mlp_dim": self.model.mlp_dim,
            "query_heads x head_dim": self.model.query_heads * self.model.head_dim,
        }
        return [
            f"model.{name} must be a multiple of mesh.fsdp ({self.mesh.fsdp}), got {size}"
            for name, size in rows.items()
            if size % self.mesh.fsdp
        ]


def preset_names() -> list[str]:
    """Names of the presets that ship with the package, sorted."""
    folder = files("workloads") / "presets"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def load_preset(name: str) -> Preset:
    """The preset `workloads/presets/<name>.yaml`.

    Raises:
        ValueError: no such preset; the message lists those there are.
    """
    if name not in preset_names():
        raise ValueError(f"{name!r} is not a preset; choose one of {', '.join(preset_names())}")
    text = (files("workloads") / "presets" / f"{name}.yaml").read_text()
    return Preset.model_validate(yaml.safe_load(text))
