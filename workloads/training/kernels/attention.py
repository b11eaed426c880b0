"""Causal attention with its rotary embedding as one forward and one backward kernel for TPU.

Proved in interpret mode on CPU against a plain reference, and compiled for TPU; never run on one.
"""

from functools import partial

import jax
from jax.ad_checkpoint import checkpoint_name

from workloads.training.kernels.backward import attention_backward
from workloads.training.kernels.blocks import HeadShape, Pair
from workloads.training.kernels.forward import attention_forward

RESIDUALS = "attention"


def fused_attention(
    z: jax.Array, rotation: Pair, segments: jax.Array | None, *, shape: HeadShape, interpret: bool
) -> jax.Array:
    """Mixed values [B, K*G*H, S]."""
    return _attention(z, rotation, segments, shape, interpret)


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _attention(z, rotation, segments, shape, interpret):
    return attention_forward(z, rotation, segments, shape, interpret)[0]


def _forward(z, rotation, segments, shape, interpret):
    mixed, logsumexp = (
        checkpoint_name(x, RESIDUALS) for x in attention_forward(z, rotation, segments, shape, interpret)
    )
    return mixed, (z, rotation, segments, mixed, logsumexp)


def _backward(shape, interpret, kept, d_mixed):
    z, rotation, segments, mixed, logsumexp = kept
    return attention_backward(z, rotation, segments, mixed, logsumexp, d_mixed, shape, interpret), None, None


_attention.defvjp(_forward, _backward)
