"""Counts weights and model FLOPs of a training step, for the utilisation of the chips.

Recomputation is not counted, because it trains nothing.
"""

from collections.abc import Mapping

from workloads.spec import LoraSpec, ModelSpec, SliceSpec

_FORWARD_AND_BACKWARD = 3
"""Factor of forward and backward pass. The backward pass multiplies twice for each multiplication of the forward pass.
"""

_WITHOUT_OWN_GRADIENT = 2
"""Factor of a frozen matrix, by which the backward pass multiplies only once, for the gradient of its input."""

_PER_MULTIPLY_ADD = 2


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
    layer = _layer(model, model.experts.per_token if model.experts else 1)
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


def flops_per_token(model: ModelSpec, sequence_length: int, lora: LoraSpec | None = None) -> float:
    """Return the model FLOPs to train on one token.

    They are 6 P + 6 L S N H, with P `matrix_parameters`, L layers, S `sequence_length`, N query heads and H head
    size. Each weight has 2 FLOPs forward and 4 backward. Attention has 2 x 2 S N H FLOPs forward for scores and mix,
    halved because a token sees only what is before it, and three times that with the backward pass
    (https://arxiv.org/abs/2204.02311, appendix B, there without the halving). For a layer with a window of W tokens,
    W (2 - W / S) replaces S. With adapters of A weights, 4 P + 6 A replaces 6 P.
    """
    times = _WITHOUT_OWN_GRADIENT if lora else _FORWARD_AND_BACKWARD
    weights = times * matrix_parameters(model) + _FORWARD_AND_BACKWARD * adapter_parameters(model, lora)
    pattern = model.pattern
    windows = [model.window(pattern[layer % len(pattern)]) for layer in range(model.layers)]
    seen = sum(_seen(window, sequence_length) for window in windows)
    attention = _FORWARD_AND_BACKWARD * seen * model.query_heads * model.head_dim
    return _PER_MULTIPLY_ADD * float(weights + attention)


def _seen(window: int | None, sequence_length: int) -> float:
    """Return twice the number of tokens that a token sees on average."""
    if window is None or window >= sequence_length:
        return sequence_length
    return window * (2 - window / sequence_length)


def utilisation(tokens_per_second: float, flops: float, slices: SliceSpec) -> float | None:
    """Return the MFU: `tokens_per_second` x `flops` per token / rated bf16 peak of all chips.

    `None` if the chips have no rated peak.
    """
    peak = slices.chips * slices.peak_bf16_tflops_per_chip * 1e12
    return tokens_per_second * flops / peak if peak else None
