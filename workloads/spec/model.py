"""Settings of a job's model, a decoder-only transformer, the checks of its variants, and its number of weights."""

from collections.abc import Mapping, Sequence
from operator import not_
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from workloads.spec.base import Flag, PositiveInt, Spec
from workloads.spec.training import LoraSpec, OptimizerSpec

Positive = Annotated[float, Field(gt=0)]

Reach = Literal["local", "global"]
"""Reach of a layer's attention: `local` is a window, `global` is the whole sequence."""


class RopeScaling(Spec):
    """Scaling of the slow frequencies of RoPE for longer texts, as in Llama 3.1.

    Frequencies with a wavelength above `original_length / low_frequency_factor` tokens are divided by
    `factor`, those below `original_length / high_frequency_factor` stay, those between are interpolated
    (https://github.com/meta-llama/llama-models, `apply_scaling`).
    """

    factor: Positive
    low_frequency_factor: Positive
    high_frequency_factor: Positive
    original_length: PositiveInt
    """Tokens per sequence of the original training."""

    @model_validator(mode="after")
    def _high_is_above_low(self) -> Self:
        if self.high_frequency_factor <= self.low_frequency_factor:
            raise ValueError(
                "rope_scaling.high_frequency_factor must be above low_frequency_factor"
                f" ({self.low_frequency_factor}), got {self.high_frequency_factor}"
            )
        return self


class ExpertsSpec(Spec):
    """A mixture of experts in place of each layer's MLP. Every token goes to `per_token` of `count` experts."""

    count: PositiveInt
    per_token: PositiveInt
    """Number of experts for each token, weighted by the softmax over their router scores. No token is dropped."""
    balance_weight: Annotated[float, Field(ge=0)]
    """Weight of the loss that spreads the tokens of each sequence over the experts
    (https://arxiv.org/abs/2412.19437, equations 17 to 20)."""

    @model_validator(mode="after")
    def _enough_experts(self) -> Self:
        if self.per_token > self.count:
            raise ValueError(f"experts.per_token must be at most experts.count ({self.count}), got {self.per_token}")
        return self


class WindowSpec(Spec):
    """Sliding windows: which layers attend only to a window, and its size."""

    size: PositiveInt
    """Number of tokens that a position of a local layer attends to, including itself."""
    pattern: Annotated[tuple[Reach, ...], Field(min_length=1)]
    """Reach of each layer, such as `[local, global]`, repeated over the layers. The last repetition may be partial."""
    rope_base: Positive | None = None
    """RoPE base of the local layers. Default: that of the model. `rope_linear_factor` and `rope_scaling` apply only to
    global layers."""


class ModelSpec(Spec):
    """A decoder-only transformer (GQA, RoPE, gated MLP, RMSNorm).

    Optional features are written only if they are set, so that specifications of models without them stay the same.
    """

    vocab_size: PositiveInt
    embed_dim: PositiveInt
    mlp_dim: PositiveInt
    """Width of the MLP, or of each expert."""
    layers: PositiveInt
    query_heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
    rope_base: Positive = 10_000.0
    rope_scaling: RopeScaling | None = None
    norm_epsilon: Positive = 1e-6
    tied_embedding: Flag = True
    experts: ExpertsSpec | None = None
    activation: Annotated[Literal["silu", "gelu"], Field(exclude_if="silu".__eq__)] = "silu"
    """Activation of the MLP's gate. `gelu` is the approximation with tanh."""
    query_key_norm: Annotated[bool, Field(exclude_if=not_)] = False
    """Whether to apply an RMSNorm to each head's queries and keys before RoPE."""
    output_norms: Annotated[bool, Field(exclude_if=not_)] = False
    """Whether to apply an RMSNorm to the outputs of attention and of the MLP before they are added."""
    norm_scales_from_one: Annotated[bool, Field(exclude_if=not_)] = False
    """Whether a norm multiplies by 1 + its weight, which begins at 0, instead of by its weight."""
    scaled_embedding: Annotated[bool, Field(exclude_if=not_)] = False
    """Whether to multiply the embeddings of tokens by the square root of `embed_dim`."""
    score_dim: Annotated[PositiveInt | None, Field(exclude_if=not_)] = None
    """Attention scores are divided by the square root of this number. Default: `head_dim`."""
    attention_soft_cap: Annotated[Positive | None, Field(exclude_if=not_)] = None
    """Limit c of attention scores s, which become c tanh(s / c). Default: no limit."""
    logit_soft_cap: Annotated[Positive | None, Field(exclude_if=not_)] = None
    """Limit c of logits s, which become c tanh(s / c). Default: no limit."""
    rope_linear_factor: Annotated[Positive | None, Field(exclude_if=not_)] = None
    """Divisor of all frequencies of RoPE, for longer texts. Default: 1."""
    windows: Annotated[WindowSpec | None, Field(exclude_if=not_)] = None
    """Sliding windows. Default: all layers attend to the whole sequence."""

    @property
    def queries_per_kv_head(self) -> int:
        return self.query_heads // self.kv_heads

    @property
    def pattern(self) -> Sequence[Reach]:
        """Reach of each layer, to be repeated over the layers."""
        return self.windows.pattern if self.windows else ("global",)

    def window(self, reach: Reach) -> int | None:
        """Return the number of tokens that a layer of this reach attends to. `None` means all."""
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


def matrix_parameters(model: ModelSpec) -> int:
    """Return the number of weights that each token is multiplied with.

    These are all matrices and the output table, but not the embedding table, and only the experts that a token goes to.
    """
    return _matrices(model, model.experts.per_token if model.experts else 1)


def total_parameters(model: ModelSpec) -> int:
    """Return the number of all weights of the model."""
    of_heads = 2 * model.head_dim if model.query_key_norm else 0
    of_layer = (4 if model.output_norms else 2) * model.embed_dim + of_heads
    norm_scales = model.layers * of_layer + model.embed_dim
    input_table = 0 if model.tied_embedding else model.vocab_size * model.embed_dim
    return _matrices(model, model.experts.count if model.experts else 1) + norm_scales + input_table


def _matrices(model: ModelSpec, mlps: int) -> int:
    """Return the number of weights of all matrices and of the output table, with `mlps` MLPs per layer."""
    router = model.embed_dim * model.experts.count if model.experts else 0
    layer = router + sum(rows * columns * times for rows, columns, times in _layer(model, mlps).values())
    return model.layers * layer + model.vocab_size * model.embed_dim


def adapter_parameters(model: ModelSpec, lora: LoraSpec | None) -> int:
    """Return the number of weights of the adapters that each token is multiplied with. 0 without adapters."""
    if lora is None:
        return 0
    return _adapters(model, lora, model.experts.per_token if model.experts else 1)


def trained_parameters(model: ModelSpec, lora: LoraSpec | None) -> int:
    """Return the number of weights that are trained: all, or those of all adapters."""
    if lora is None:
        return total_parameters(model)
    return _adapters(model, lora, model.experts.count if model.experts else 1)


def state_bytes(model: ModelSpec, lora: LoraSpec | None, optimizer: OptimizerSpec) -> int:
    """Return the fewest bytes of the trained weights and their moments, all in float32.

    AdamW has two moments of each weight. Muon has one of the matrices of layers, and here of all.
    """
    return 4 * (3 if optimizer.kind == "adamw" else 2) * trained_parameters(model, lora)


def _adapters(model: ModelSpec, lora: LoraSpec, mlps: int) -> int:
    """Return the number of weights of the adapters, with those of `mlps` MLPs per layer."""
    layer = _layer(model, mlps)
    sizes = [layer[name] for name in lora.targets]
    return model.layers * lora.rank * sum((rows + columns) * times for rows, columns, times in sizes)


def _layer(model: ModelSpec, mlps: int) -> Mapping[str, tuple[int, int, int]]:
    """Return rows, columns and number of each matrix of a layer, without the router."""
    embed, mlp, heads = model.embed_dim, model.mlp_dim, model.query_heads * model.head_dim
    return {
        "query_key_value": (embed, heads + 2 * model.kv_heads * model.head_dim, 1),
        "out": (heads, embed, 1),
        "gate": (embed, mlp, mlps),
        "up": (embed, mlp, mlps),
        "down": (mlp, embed, mlps),
    }
