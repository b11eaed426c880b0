"""The model of a job: a decoder-only transformer and what each of its variants must satisfy."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from workloads.spec.base import PositiveInt, Spec

Positive = Annotated[float, Field(gt=0)]


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


class ModelSpec(Spec):
    """A decoder-only transformer (GQA, RoPE, SwiGLU, RMSNorm)."""

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

    @property
    def queries_per_kv_head(self) -> int:
        return self.query_heads // self.kv_heads

    @model_validator(mode="after")
    def _heads_group_evenly(self) -> Self:
        if self.query_heads % self.kv_heads:
            raise ValueError(f"query_heads must be a multiple of kv_heads ({self.kv_heads}), got {self.query_heads}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even for RoPE, got {self.head_dim}")
        return self
