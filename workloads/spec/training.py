"""Settings of training: optimizer, length, numerics, and when to save, evaluate and stop."""

from math import ceil
from operator import not_
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, field_validator, model_validator

from workloads.spec.base import Number, PositiveInt, Spec, WholeNumber

WANDB_KEY_VARIABLE = "WANDB_API_KEY"
"""Environment variable from which the library of Weights & Biases reads its API key."""


class WandbSpec(Spec):
    """A project of Weights & Biases."""

    project: Annotated[str, Field(min_length=1)]
    entity: Annotated[str | None, Field(min_length=1)] = None
    """User or team that the project belongs to. Default: the default of the key's owner."""


class TrackersSpec(Spec):
    """Trackers of the run's curves. All are off by default."""

    tensorboard: Annotated[bool, Field(exclude_if=not_)] = False
    """Whether to write event files for TensorBoard to `runs/<run>/tensorboard`."""
    wandb: Annotated[WandbSpec | None, Field(exclude_if=not_)] = None
    """Project of Weights & Biases to send the curves to. The image needs the package wandb, and the job needs a secret
    WANDB_API_KEY."""


Remat = Literal["none", "dots", "attention", "full", "offload"]
"""Which outputs of a layer's forward pass are kept for its backward pass:

    none       all outputs of matrix products, of attention, and of the gated MLP's product
    dots       outputs of matrix products and of attention
    attention  the output of attention
    full       none: everything is computed again
    offload    the output of attention, which is kept in the host's memory with the layer's input
"""

Kernel = Literal["fused", "splash-2048", "splash", "reference"]
"""A kernel that computes attention."""

Attention = Literal["auto", Kernel]
"""The attention kernel on TPU. Other devices always use `reference`.

    auto         the fastest of the next three that computes correctly on the job's own chips; each attempt tests them,
                 and a run that continues on the same kind of chips keeps its kernel
    fused        this project's kernel, with the rotary embedding inside; no TPU has run it yet
    splash-2048  JAX's kernel in blocks of up to 2048 positions, with one kernel for the backward pass
    splash       JAX's kernel in blocks of up to 1024 positions, with two kernels for the backward pass
    reference    plain JAX with all scores of a sequence in memory
"""

ExpertProducts = Literal["auto", "megablox", "ragged-dot"]
"""What multiplies the rows of experts on TPU. Other devices always use `ragged-dot`.

    auto        the faster of the next two that computes correctly on the job's own chips, chosen as `attention` is
    megablox    JAX's Pallas kernels
    ragged-dot  `jax.lax.ragged_dot`, with the compiler's kernels
"""


MUON_MOMENTUM = 0.95
"""The value of https://kellerjordan.github.io/posts/muon/ and https://arxiv.org/abs/2502.16982."""


class OptimizerSpec(Spec):
    """AdamW or Muon with linear warm-up, cosine decay and gradients clipped by their global norm."""

    kind: Annotated[Literal["adamw", "muon"], Field(exclude_if="adamw".__eq__)] = "adamw"
    """Optimizer. `muon` updates the matrices of the layers with orthogonalised momentum and all other weights as
    `adamw` does; both use the same learning rate and weight decay. A run keeps the kind that it began with."""
    learning_rate: Annotated[Number, Field(gt=0)]
    warmup_steps: Annotated[WholeNumber, Field(ge=0)]
    weight_decay: Annotated[Number, Field(ge=0)]
    beta1: Annotated[Number, Field(gt=0, lt=1)]
    beta2: Annotated[Number, Field(gt=0, lt=1)]
    momentum: Annotated[Number, Field(gt=0, lt=1, exclude_if=MUON_MOMENTUM.__eq__)] = MUON_MOMENTUM
    """Decay of the momentum of the matrices that Muon updates. Not allowed with `kind: adamw`."""
    clip_norm: Annotated[Number, Field(gt=0)]
    skip_norm: Annotated[Annotated[Number, Field(gt=0)] | None, Field(exclude_if=not_)] = None
    """Largest global norm of a gradient before clipping. A step above it is skipped: it changes neither weights nor
    optimizer. Default: no limit."""

    @model_validator(mode="after")
    def _settings_go_together(self) -> Self:
        faults: list[str] = []
        if self.kind == "adamw" and self.momentum != MUON_MOMENTUM:
            faults.append(f"momentum needs kind muon (for adamw, set beta1), got {self.momentum}")
        if self.skip_norm is not None and self.skip_norm < self.clip_norm:
            faults.append(f"skip_norm must be at least clip_norm ({self.clip_norm}), got {self.skip_norm}")
        if faults:
            raise ValueError("; ".join(faults))
        return self


CHANGEABLE = tuple(f"optimizer.{name}" for name in OptimizerSpec.model_fields if name != "kind")
"""Settings that may change when a run continues. The kind may not, because it determines the arrays of a checkpoint."""


def _changeable(name: str) -> str:
    if name not in CHANGEABLE:
        raise ValueError(f"one of {', '.join(CHANGEABLE)}")
    return name


OptimizerSetting = Annotated[str, AfterValidator(_changeable)]
"""Name of a setting of the optimizer, such as `optimizer.learning_rate`."""


LoraTarget = Literal["query_key_value", "out", "gate", "up", "down"]
"""A matrix of each layer. The first two are in attention, the others in the MLP or in each expert."""


class LoraSpec(Spec):
    """Low-rank adapters of a frozen model. Each target W of each layer is replaced by W + alpha / rank A B
    (https://arxiv.org/abs/2106.09685). B begins at 0, so the first step computes the original model."""

    rank: PositiveInt
    """Number of columns of A and of rows of B."""
    alpha: Annotated[Number, Field(gt=0)]
    targets: Annotated[tuple[LoraTarget, ...], Field(min_length=1)] = get_args(LoraTarget)
    """Matrices to adapt. Default: all."""

    @field_validator("targets")
    @classmethod
    def _each_once(cls, targets: tuple[LoraTarget, ...]) -> tuple[LoraTarget, ...]:
        if len({*targets}) < len(targets):
            raise ValueError(f"each target only once, got {', '.join(targets)}")
        return targets


class TrainingSpec(Spec):
    """Settings of training."""

    steps: PositiveInt
    global_batch: PositiveInt
    """Sequences per step over all slices."""
    accumulation: PositiveInt = 1
    """Number of parts that a device splits its sequences of a step into, so that it holds the activations of only one
    part. Gradients cross slices once per step. In a pipeline, these parts are the microbatches."""
    sequence_length: PositiveInt
    """Tokens per sequence."""
    seed: Annotated[WholeNumber, Field(ge=0, lt=1 << 32)]
    """Seed of the initial weights and of the order of rows."""
    save_every_steps: PositiveInt
    save_every_minutes: Annotated[Number, Field(gt=0)] = 10.0
    """Longest time between saves, in minutes. It limits the work that a crash can cost."""
    keep_checkpoints: PositiveInt
    """Number of newest checkpoints to keep. With 1, there is no other checkpoint if that one is damaged."""
    keep_every_steps: PositiveInt | None = None
    """Number of steps between checkpoints that are kept permanently. Default: only the newest are kept."""
    local_save_every_steps: Annotated[PositiveInt | None, Field(exclude_if=not_)] = None
    """Number of steps between saves to the memory of the hosts' pods, which outlives the processes in them. With 1, a
    restart repeats at most one step as long as the pods of one slice stay. Default: no such saves, so a restart repeats
    the steps since the last checkpoint. See `docs/how-to/jobs.md`."""
    evaluate_every_steps: PositiveInt
    evaluation_batches: PositiveInt
    z_loss: Annotated[Number, Field(ge=0, exclude_if=not_)] = 0.0
    """Weight of the z-loss, which keeps the logits from growing: the mean of log(Z)^2 over the tokens that count, where
    Z is the sum of the exponentials of a token's logits. 0 turns it off; 1e-4 is usual
    (https://arxiv.org/abs/2204.02311, section 5). The reported loss does not include it."""
    compute_dtype: Literal["float32", "bfloat16"]
    """Type of activations, of gathered weights and of gradients between devices. Weights, optimizer state and sums over
    tokens are in float32."""
    remat: Remat = "attention"
    attention: Attention = "auto"
    expert_products: Annotated[ExpertProducts, Field(exclude_if="auto".__eq__)] = "auto"
    gather_weights: Literal["each-layer", "each-step"] = "each-layer"
    """When the devices of a slice gather the shards of the weights. `each-layer` does it before each layer (ZeRO-3).
    `each-step` does it once per step (ZeRO-1): each device then holds all weights, and fewer bytes move if
    `accumulation` is large. The optimizer state stays split in both cases."""
    ignored_token: Annotated[WholeNumber, Field(ge=0)] | None = None
    """Token for padding, which does not count: the loss is the mean over all other tokens of the global batch."""
    loss_on: Annotated[Literal["all", "completions"], Field(exclude_if="all".__eq__)] = "all"
    """Tokens whose predictions count. With `completions`, tokens of a prompt do not, as marked in the data; see
    `docs/how-to/data.md`. All tokens of data without prompts count."""
    lora: Annotated[LoraSpec | None, Field(exclude_if=not_)] = None
    """Adapters to train on the model in `initial_weights`, which does not change. Default: train all weights."""
    document_end: Annotated[WholeNumber, Field(ge=0)] | None = None
    """Token that ends a document. Tokens then attend only to their own document. Default: to the whole row."""
    start_minutes: Annotated[Number, Field(gt=0, le=60)] = 30
    """Time limit in minutes for all hosts to begin. Slices may start minutes apart."""
    read_once_from_replicas: PositiveInt = 4
    """Number of replicas from which only the hosts of the first one read checkpoints and initial weights, and send them
    to the others over the mesh. With fewer replicas, every host reads its own shards."""
    prepare_minutes: Annotated[Number, Field(gt=0)] = 60
    """Time limit in minutes for compiling and restoring, or for the first evaluation. After it, a host counts as hung.
    """
    step_timeout_minutes: Annotated[Number, Field(gt=0)] = 10
    """Time limit in minutes for a step including its save, or for a batch of a later evaluation, after which a host
    counts as hung."""
    max_skipped_steps: Annotated[WholeNumber, Field(ge=0)] = 10
    """Number of steps in a row that may be skipped before the job has diverged. A step is skipped if its loss or
    gradient is not finite, or if the gradient's norm is above `optimizer.skip_norm`."""
    max_rollbacks: Annotated[WholeNumber, Field(ge=0)] = 0
    """Number of rollbacks per attempt. Instead of ending as diverged, the job returns to its newest checkpoint and
    leaves out the batches used since then."""
    compare_hosts_every_steps: PositiveInt = 50
    """Number of steps between comparisons of the hosts' pace."""
    compare_slices_every_steps: PositiveInt = 100
    """Number of steps between comparisons of the slices' fingerprints of their state, which finds a flipped bit. A save
    compares them too. A comparison takes about as long as reading the chips' memory once, some hundredths of a second.
    """
    profile_steps: tuple[PositiveInt, PositiveInt] | None = None
    """First and last step to record with JAX's profiler. Default: no steps."""

    @property
    def counts_all(self) -> bool:
        """Whether every prediction of the global batch counts."""
        return self.ignored_token is None and not self.reads_marks

    @property
    def reads_marks(self) -> bool:
        """Whether tokens carry marks for the loss. See `workloads.data.packing`."""
        return self.loss_on == "completions"

    def batch_rows(self, data_shards: int) -> int:
        """Return the number of rows of a step: the global batch and padding, so that `data_shards` get equally many."""
        return data_shards * ceil(self.global_batch / data_shards)

    def part_rows(self, rows: int) -> int:
        """Return how many of its rows a device computes at once. The last part may have fewer."""
        return ceil(rows / self.accumulation)

    @model_validator(mode="after")
    def _steps_agree(self) -> Self:
        if self.profile_steps and not self.profile_steps[0] <= self.profile_steps[1] <= self.steps:
            raise ValueError(
                f"profile_steps must be first and last step, in order and at most {self.steps},"
                f" got {list(self.profile_steps)}"
            )
        if self.keep_every_steps and self.keep_every_steps % self.save_every_steps:
            raise ValueError(
                f"keep_every_steps must be a multiple of save_every_steps ({self.save_every_steps}),"
                f" got {self.keep_every_steps}"
            )
        return self
