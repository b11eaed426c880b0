"""Causal attention with its rotary embedding, as one forward and one backward kernel for TPU.

It is tested in interpret mode on CPU against a plain reference, and compiled for TPU, but has never run on one.

This module has the gradient rule, the results that a remat policy may keep, and the checks of shapes.
"""

from functools import partial

import jax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.pallas import tpu as pltpu

from workloads.training.failures import InvalidSpec
from workloads.training.kernels.backward import Kept, attention_backward, backward_vmem_bytes
from workloads.training.kernels.blocks import LANES, HeadShape, Pair
from workloads.training.kernels.forward import attention_forward, forward_vmem_bytes
from workloads.training.remat import ATTENTION

__all__ = ["HeadShape", "fused_attention"]

VMEM_SHARE = 7 / 8
"""Largest share of a core's VMEM that a kernel may use, because the compiler needs some. It compiles for v6e, which has
128 MiB, and for 7x, which has 64 MiB."""


def fused_attention(
    z: jax.Array, rotation: Pair, segments: jax.Array | None, *, shape: HeadShape, interpret: bool
) -> jax.Array:
    """Compute causal attention of all heads. Return mixed values [B, K*G*H, S] in the type of z.

    z is [B, K*(G+2)*H, S]. For each of K kv heads, the rows are G query heads, then key, then value, H rows each,
    not rotated. `rotation` is cosine and sine [H/2, S] float32 of a rotary embedding on halves. It gets no
    gradient. With `segments`, int32 [B, S], a token attends only to earlier tokens of its own segment.

    Raises:
        ValueError: z does not have the rows of `shape`.
        InvalidSpec: the kernel does not support the length of the sequence.
    """
    _check(z, shape, interpret)
    return _attention(z, rotation, segments, shape, interpret)


def _check(z: jax.Array, shape: HeadShape, interpret: bool) -> None:
    rows, length = z.shape[1:]
    if rows != (expected := shape.kv_heads * shape.rows * shape.head_dim):
        raise ValueError(f"z has {rows} rows, but {shape} needs {expected}; order the projection's columns by kv head")
    if length % LANES and not interpret:
        raise InvalidSpec(
            f"sequences of {length} tokens; this kernel needs multiples of {LANES}: pad them, or set attention: splash"
        )
    # This is the device that is traced for. A CPU, which interprets the kernel, has no VMEM.
    if pltpu.is_tpu_device():
        _check_vmem(z, shape)


def _check_vmem(z: jax.Array, shape: HeadShape) -> None:
    chip = pltpu.get_tpu_info()
    needed = max(forward_vmem_bytes(z, shape), backward_vmem_bytes(z, shape))
    most = int(VMEM_SHARE * chip.vmem_capacity_bytes)
    if needed > most:
        raise InvalidSpec(
            f"sequences of {z.shape[2]} tokens with heads of {shape.head_dim} in {z.dtype} need {needed >> 20} MiB of"
            f" VMEM in this kernel, which may use {most >> 20} MiB of a {chip.chip_version}; shorten them, or set"
            " attention: splash"
        )


@partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _attention(
    z: jax.Array, rotation: Pair, segments: jax.Array | None, shape: HeadShape, interpret: bool
) -> jax.Array:
    return attention_forward(z, rotation, segments, shape, interpret)[0]


def _forward(
    z: jax.Array, rotation: Pair, segments: jax.Array | None, shape: HeadShape, interpret: bool
) -> tuple[jax.Array, Kept]:
    mixed, logsumexp = checkpoint_name(attention_forward(z, rotation, segments, shape, interpret), ATTENTION)
    return mixed, Kept(z, rotation, segments, mixed, logsumexp)


def _backward(shape: HeadShape, interpret: bool, kept: Kept, d_mixed: jax.Array) -> tuple[jax.Array, None, None]:
    return attention_backward(kept, d_mixed, shape, interpret), None, None


_attention.defvjp(_forward, _backward)
