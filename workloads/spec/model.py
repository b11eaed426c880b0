"""The model of a job: a decoder-only transformer and what each of its variants must satisfy."""

from collections.abc import Sequence
from operator import not_
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from workloads.spec.base import PositiveInt, Spec

Positive = Annotated[float, Field(gt=0)]

Reach = Literal["local", "global"]
"""How far back a layer attends: within a window, or over the whole sequence."""


class RopeScaling(Spec):
    """Llama 3.1's stretching of the rotary embedding's slow frequencies for longer texts.

    Frequencies with a wavelength above `original_length / low_frequency_factor` tokens are divided by
    `factor`, those below `original_length / high_frequency_factor` stay, those between are interpolated
    (https://github.com/meta-llama/llama-models, `apply_scaling`).
    """

    factor: Positive
    low_frequency_factor: Positive
    high_frequency_factor: Positive
    original_length: PositiveInt
    """Tokens per sequence of the first training."""

    @model_validator(mode="after")
    def _high_is_above_low(self) -> Self:
        if self.high_frequency_factor <= self.low_frequency_factor:
            raise ValueError(
                "rope_scaling.high_frequency_factor must be above low_frequency_factor"
                f" ({self.low_frequency_factor}), got {self.high_frequency_factor}"
            )
        return self


class ExpertsSpec(Spec):
    """A mixture of experts in place of each layer's MLP: every token goes to `per_token` of `count`."""

    count: PositiveInt
    per_token: PositiveInt
    """A token's experts are weighted by the softmax over their router scores; none is ever dropped."""
    balance_weight: Annotated[float, Field(ge=0)]
    """Weight of the loss that spreads the tokens of each sequence over the experts
    (https://arxiv.org/abs/2412.19437, equations 17 to 20)."""

    @model_validator(mode="after")
    def _enough_experts(self) -> Self:
        if self.per_token > self.count:
            raise ValueError(f"experts.per_token must be at most experts.count ({self.count}), got {self.per_token}")
        return self


class WindowSpec(Spec):
    """Layers whose attention reaches back over a window only, and their place among the layers."""

    size: PositiveInt
    """Tokens that a position of a local layer attends to, itself included."""
    pattern: Annotated[tuple[Reach, ...], Field(min_length=1)]
    """Repeated over the layers, such as `[local, global]`; the last round may be cut short."""
    rope_base: Positive | None = None
    """RoPE base of the local layers; None: that of the model. `rope_linear_factor` and `rope_scaling` are for global
    layers only."""


class ModelSpec(Spec):
    """A decoder-only transformer (GQA, RoPE, gated MLP, RMSNorm).

    What has a default that leaves it out is not written, so that specifications of models without it stay the same.
    """

    vocab_size: PositiveInt
    embed_dim: PositiveInt
    mlp_dim: PositiveInt
    """Of each expert, where there are experts."""
    layers: PositiveInt
    query_heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
    rope_base: Positive = 10_000.0
    rope_scaling: RopeScaling | None = None
    norm_epsilon: Positive = 1e-6
    tied_embedding: bool = True
    experts: ExpertsSpec | None = None
    activation: Annotated[Literal["silu", "gelu"], Field(exclude_if="silu".__eq__)] = "silu"
    """Of the gate of an MLP; `gelu` by its approximation with tanh."""
    query_key_norm: Annotated[bool, Field(exclude_if=not_)] = False
    """Whether each head's queries and keys pass an RMSNorm before RoPE."""
    output_norms: Annotated[bool, Field(exclude_if=not_)] = False
    """Whether the outputs of attention and of the MLP pass an RMSNorm too, before they are added."""
    norm_scales_from_one: Annotated[bool, Field(exclude_if=not_)] = False
    """Whether a norm multiplies by 1 + its weight, which begins at 0, instead of by its weight."""
    scaled_embedding: Annotated[bool, Field(exclude_if=not_)] = False
    """Whether looked-up rows of the embedding are multiplied by the square root of `embed_dim`."""
    score_dim: Annotated[PositiveInt | None, Field(exclude_if=not_)] = None
    """Attention scores are divided by the square root of this number; None: of `head_dim`."""
    attention_soft_cap: Annotated[Positive | None, Field(exclude_if=not_)] = None
    """Limit c of attention scores s, which become c tanh(s / c)."""
    logit_soft_cap: Annotated[Positive | None, Field(exclude_if=not_)] = None
    """The same for the logits."""
    rope_linear_factor: Annotated[Positive | None, Field(exclude_if=not_)] = None
    """Divides all frequencies of RoPE, for longer texts."""
    windows: Annotated[WindowSpec | None, Field(exclude_if=not_)] = None
    """Layers with sliding windows; None: all layers attend to the whole sequence."""

    @property
    def queries_per_kv_head(self) -> int:
        return self.query_heads // self.kv_heads

    @property
    def pattern(self) -> Sequence[Reach]:
        """How far each layer attends, to be repeated over the layers."""
        return self.windows.pattern if self.windows else ("global",)

    def window(self, reach: Reach) -> int | None:
        """Tokens that a layer of this reach attends to; None: all."""
        return self.windows.size if self.windows and reach == "local" else None

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        checks = {
            f"query_heads must be a multiple of kv_heads ({self.kv_heads}), got {self.query_heads}": (
                self.query_heads % self.kv_heads == 0
            ),
            f"head_dim must be even for RoPE, got {self.head_dim}": self.head_dim % 2 == 0,
            "rope_scaling and rope_linear_factor exclude each other, got both": not (
                self.rope_scaling and self.rope_linear_factor
            ),
        }
        if wrong := [fault for fault, right in checks.items() if not right]:
            raise ValueError("; ".join(wrong))
        return self
