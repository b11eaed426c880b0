"""Counts model FLOPs of a training step, for the utilisation of the chips.

Recomputation is not counted, because it trains nothing.
"""

from workloads.spec import LoraSpec, ModelSpec, SliceSpec
from workloads.spec.model import adapter_parameters, matrix_parameters

_FORWARD_AND_BACKWARD = 3
"""Factor of forward and backward pass. The backward pass multiplies twice for each multiplication of the forward pass.
"""

_WITHOUT_OWN_GRADIENT = 2
"""Factor of a frozen matrix, by which the backward pass multiplies only once, for the gradient of its input."""

_PER_MULTIPLY_ADD = 2


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
