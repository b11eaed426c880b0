"""How a job trains: optimizer, length, numerics, and when it saves, looks and gives up."""

from math import ceil
from operator import not_
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, Field, field_validator, model_validator

from workloads.spec.base import Number, PositiveInt, Spec, WholeNumber

WANDB_KEY_VARIABLE = "WANDB_API_KEY"
"""Variable from which the library of Weights & Biases takes the key of its user."""


class WandbSpec(Spec):
    """A project of Weights & Biases."""

    project: Annotated[str, Field(min_length=1)]
    entity: Annotated[str | None, Field(min_length=1)] = None
    """User or team that the project belongs to. None: the default of the key's owner."""


class TrackersSpec(Spec):
    """Trackers of the run's curves. None is used unless it is set."""

    tensorboard: Annotated[bool, Field(exclude_if=not_)] = False
    """Whether to write event files for TensorBoard to `runs/<run>/tensorboard`."""
    wandb: Annotated[WandbSpec | None, Field(exclude_if=not_)] = None
    """Project of Weights & Biases to send the curves to. The image needs the package wandb, and the job a secret
    WANDB_API_KEY."""


Remat = Literal["none", "dots", "attention", "full", "offload"]
"""What of a layer's forward pass is kept for its backward pass:

    none       all outputs of matrix products, of attention, and of the gated MLP's product
    dots       outputs of matrix products and of attention
    attention  the output of attention
    full       nothing, all is computed again
    offload    nothing, and the layer's input waits in the host's memory
"""

Kernel = Literal["fused", "splash-2048", "splash", "reference"]
"""What computes attention."""

Attention = Literal["auto", Kernel]
"""The attention kernel on TPU. On other devices `reference` runs, whatever is named.

    auto         the fastest of the next three that computes rightly on the job's own chips, which each start finds
                 out; a run that continues on the same kind of chips keeps its kernel
    fused        this project's, with the rotary embedding inside; no TPU has run it yet
    splash-2048  JAX's own, in blocks of up to 2048 positions, with one kernel for the backward pass
    splash       JAX's own, in blocks of up to 1024 positions, with two
    reference    plain JAX with all scores of a sequence in memory
"""


MUON_MOMENTUM = 0.95
"""The value of https://kellerjordan.github.io/posts/muon/ and https://arxiv.org/abs/2502.16982."""


class OptimizerSpec(Spec):
    """AdamW or Muon with linear warm-up and cosine decay, clipped by global norm."""

    kind: Annotated[Literal["adamw", "muon"], Field(exclude_if="adamw".__eq__)] = "adamw"
    """`muon` updates the matrices of the layers with orthogonalised momentum, and all other weights as `adamw` does.
    Learning rate and weight decay hold for both. A run keeps the kind that it began with."""
    learning_rate: Annotated[Number, Field(gt=0)]
    warmup_steps: Annotated[WholeNumber, Field(ge=0)]
    weight_decay: Annotated[Number, Field(ge=0)]
    beta1: Annotated[Number, Field(gt=0, lt=1)]
    beta2: Annotated[Number, Field(gt=0, lt=1)]
    momentum: Annotated[Number, Field(gt=0, lt=1, exclude_if=MUON_MOMENTUM.__eq__)] = MUON_MOMENTUM
    """Decay of the momentum of the matrices that Muon updates. It is refused with `kind: adamw`."""
    clip_norm: Annotated[Number, Field(gt=0)]
    skip_norm: Annotated[Annotated[Number, Field(gt=0)] | None, Field(exclude_if=not_)] = None
    """A step is skipped if the global norm of its gradient, before clipping, is above this. It then changes neither
    weights nor optimizer. None: no step is skipped for its norm."""

    @model_validator(mode="after")
    def _settings_go_together(self) -> Self:
        faults: list[str] = []
        if self.kind == "adamw" and self.momentum != MUON_MOMENTUM:
            faults.append(f"momentum needs kind muon, since that of adamw is beta1, got {self.momentum}")
        if self.skip_norm is not None and self.skip_norm < self.clip_norm:
            faults.append(f"skip_norm must be at least clip_norm ({self.clip_norm}), got {self.skip_norm}")
        if faults:
            raise ValueError("; ".join(faults))
        return self


CHANGEABLE = tuple(f"optimizer.{name}" for name in OptimizerSpec.model_fields if name != "kind")
"""Settings that a run may continue with at another value. The kind says which arrays a checkpoint has."""


def _changeable(name: str) -> str:
    if name not in CHANGEABLE:
        raise ValueError(f"one of {', '.join(CHANGEABLE)}")
    return name


OptimizerSetting = Annotated[str, AfterValidator(_changeable)]
"""The name of a setting of the optimizer, such as `optimizer.learning_rate`."""


LoraTarget = Literal["query_key_value", "out", "gate", "up", "down"]
"""A matrix of each layer: of attention the first two, of the MLP or of each expert the others."""


class LoraSpec(Spec):
    """Train low-rank adapters of a frozen model: each target W of each layer is used as W + alpha / rank A B
    (https://arxiv.org/abs/2106.09685). B begins at 0, so the first step sees the model as it is."""

    rank: PositiveInt
    """Columns of A and rows of B."""
    alpha: Annotated[Number, Field(gt=0)]
    targets: Annotated[tuple[LoraTarget, ...], Field(min_length=1)] = get_args(LoraTarget)
    """Default: all."""

    @field_validator("targets")
    @classmethod
    def _each_once(cls, targets: tuple[LoraTarget, ...]) -> tuple[LoraTarget, ...]:
        if len({*targets}) < len(targets):
            raise ValueError(f"each target once, got {', '.join(targets)}")
        return targets


class TrainingSpec(Spec):
    """How long and how often."""

    steps: PositiveInt
    global_batch: PositiveInt
    """Sequences per step over all slices."""
    accumulation: PositiveInt = 1
    """Parts in which a device works through its sequences of a step, to hold the activations of one
    part only. Gradients cross slices once for all of them. The microbatches of a pipeline are these."""
    sequence_length: PositiveInt
    """Tokens per sequence."""
    seed: Annotated[WholeNumber, Field(ge=0, lt=1 << 32)]
    """Of the first weights and of the order of rows."""
    save_every_steps: PositiveInt
    save_every_minutes: Annotated[Number, Field(gt=0)] = 10.0
    """Save also when the last save is this long ago: the most work that a crash can cost."""
    keep_checkpoints: PositiveInt
    """Newest checkpoints that are kept; with 1, a damaged one leaves nothing to go back to."""
    keep_every_steps: PositiveInt | None = None
    """Also keep the checkpoint of every so many steps for good; None keeps the newest alone."""
    evaluate_every_steps: PositiveInt
    evaluation_batches: PositiveInt
    z_loss: Annotated[Number, Field(ge=0, exclude_if=not_)] = 0.0
    """Weight of the z-loss, which keeps the logits from growing: the mean of log(Z)^2 over the tokens that count, where
    Z is the sum of the exponentials of a token's logits. 0 turns it off; 1e-4 is usual
    (https://arxiv.org/abs/2204.02311, section 5). It is not part of the loss that is reported."""
    compute_dtype: Literal["float32", "bfloat16"]
    """Of activations, of gathered weights and of gradients on their way between devices. Weights and
    optimizer are kept in float32, sums over tokens are made in it."""
    remat: Remat = "attention"
    attention: Attention = "auto"
    gather_weights: Literal["each-layer", "each-step"] = "each-layer"
    """When the devices of a slice put their shards of the weights together: before each layer (ZeRO-3),
    or once a step (ZeRO-1), which holds all weights on each device and moves fewer bytes when
    `accumulation` is large. The optimizer's state stays split either way."""
    ignored_token: Annotated[WholeNumber, Field(ge=0)] | None = None
    """Padding: predicting it counts for nothing. The loss is the mean over all other tokens of the global batch."""
    loss_on: Annotated[Literal["all", "completions"], Field(exclude_if="all".__eq__)] = "all"
    """`completions`: predicting a token of a prompt counts for nothing, as the data marks them; see `docs/data.md`.
    Tokens of data without prompts all count."""
    lora: Annotated[LoraSpec | None, Field(exclude_if=not_)] = None
    """Train adapters of the model in `initial_weights`, which stays as it is. Unset: train all weights."""
    document_end: Annotated[WholeNumber, Field(ge=0)] | None = None
    """The token that ends a document: tokens then attend to their own document only. None: to the whole row."""
    start_minutes: Annotated[Number, Field(gt=0, le=60)] = 30
    """How long a host waits for all others to begin; slices may come up minutes apart."""
    read_once_from_replicas: PositiveInt = 4
    """From this many replicas on, only the hosts of the first one read checkpoints and initial weights, and send them
    to the others over the mesh. With fewer, every host reads its own shards."""
    prepare_minutes: Annotated[Number, Field(gt=0)] = 60
    """How long compiling and restoring, or the first evaluation, may take before the host counts as hung."""
    step_timeout_minutes: Annotated[Number, Field(gt=0)] = 10
    """How long a step with the save after it, or a batch of a later evaluation, may take before the host counts as
    hung."""
    max_skipped_steps: Annotated[WholeNumber, Field(ge=0)] = 10
    """Steps in a row that are skipped before the job has diverged: their loss or gradient is not finite, or the
    gradient's norm is above `optimizer.skip_norm`."""
    max_rollbacks: Annotated[WholeNumber, Field(ge=0)] = 0
    """Where it would have diverged, the job goes back to its newest checkpoint this many times in one start and
    leaves out the batches that it had taken since then."""
    compare_hosts_every_steps: PositiveInt = 50
    """How often hosts compare their pace."""
    compare_slices_every_steps: PositiveInt = 100
    """How often slices compare the fingerprints of all that they hold; a save does it too. It takes about the time
    that the chips need to read their memory once, some hundredths of a second. What a flipped bit spoils is then
    found within as many steps."""
    profile_steps: tuple[PositiveInt, PositiveInt] | None = None
    """First and last step to record with JAX's profiler; none when unset."""

    @property
    def counts_all(self) -> bool:
        """Whether every prediction of the global batch counts."""
        return self.ignored_token is None and not self.reads_marks

    @property
    def reads_marks(self) -> bool:
        """Whether tokens carry the mark of what is not learned, see `workloads.data.packing`."""
        return self.loss_on == "completions"

    def batch_rows(self, data_shards: int) -> int:
        """Return the rows of a step: the global batch, and padding at its end that gives `data_shards` equally many."""
        return data_shards * ceil(self.global_batch / data_shards)

    def part_rows(self, rows: int) -> int:
        """Return how many of a device's rows it takes at once. Its last part may have fewer."""
        return ceil(rows / self.accumulation)

    @model_validator(mode="after")
    def _profile_in_order(self) -> Self:
        if self.profile_steps and not self.profile_steps[0] <= self.profile_steps[1] <= self.steps:
            raise ValueError(
                f"profile_steps must be first and last step, in order and of the {self.steps} steps there are,"
                f" got {list(self.profile_steps)}"
            )
        return self

    @model_validator(mode="after")
    def _kept_steps_are_saved(self) -> Self:
        if self.keep_every_steps and self.keep_every_steps % self.save_every_steps:
            raise ValueError(
                f"keep_every_steps must be a multiple of save_every_steps ({self.save_every_steps}),"
                f" got {self.keep_every_steps}"
            )
        return self
