"""Causal attention of one layer, from the normed input to the output projection.

Owns the implementations behind the setting `training.attention`; each has the layout that its kernel likes.
Dimensions: B sequences, S positions, D embed, K kv heads, G query heads of each, H head. A device has its own
K under tensor parallelism. The columns of `query_key_value` [D, K (G + 2) H] are, for each kv head, its G query
heads, its key and its value.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash_kernel
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as splash_mask

from workloads.spec import Attention
from workloads.training.failures import InvalidSpec
from workloads.training.kernels.attention import HeadShape, fused_attention
from workloads.training.kernels.blocks import LANES
from workloads.training.remat import ATTENTION, PROJECTION, named
from workloads.training.rope import Rotation, rotate

SPLASH_BLOCK = 1024
"""Positions that splash attention works on at once, at most; fewer where they do not divide the sequence."""


@dataclass(frozen=True)
class Heads:
    """Sizes of attention, and which implementation computes it."""

    queries_per_kv_head: int
    head_dim: int
    kernel: Attention


@dataclass(frozen=True)
class Sequence:
    """What attention must know of the positions of its input."""

    rotation: Rotation
    segments: jax.Array | None
    """int32 [B, S]: a position attends to earlier ones of its own segment; None when there is one segment."""


def attend(x: jax.Array, query_key_value: jax.Array, out: jax.Array, heads: Heads, sequence: Sequence) -> jax.Array:
    """x [B, S, D] to [B, S, D], projected by `query_key_value` and `out` [K G H, D]."""
    if heads.kernel == "reference":
        return _plain(x, query_key_value, out, heads, sequence)
    # Positions last, as the kernels like it: heads of 64 would fill half of a TPU's 128 lanes.
    projected = named(jnp.einsum("bsd,df->bfs", x, query_key_value), PROJECTION)
    if heads.kernel == "fused":
        return _fused(projected, out, heads, sequence)
    mixed = _splash(projected, heads, sequence)
    return jnp.einsum("bkgsh,kghd->bsd", mixed, out.reshape(*mixed.shape[1:3], heads.head_dim, -1))


def _plain(x: jax.Array, query_key_value: jax.Array, out: jax.Array, heads: Heads, sequence: Sequence) -> jax.Array:
    """All of `attend` in plain JAX, by matrix products that XLA has fast code for on CPU: of two dimensions, or batches
    of them."""
    batch, positions, embed = x.shape
    projected = named(x.reshape(-1, embed) @ query_key_value, PROJECTION)
    grouped = projected.reshape(batch, positions, -1, heads.queries_per_kv_head + 2, heads.head_dim)
    grouped = grouped.transpose(0, 2, 3, 1, 4)
    query, key, value = grouped[:, :, :-2], grouped[:, :, -2], grouped[:, :, -1]
    query, key = rotate(query, sequence.rotation, -1), rotate(key, sequence.rotation, -1)
    scores = jnp.einsum("bkgsh,bkth->bkgst", query * heads.head_dim**-0.5, key, preferred_element_type=jnp.float32)
    places = jnp.arange(positions)
    seen = (places[:, None] >= places[None])[None]
    if sequence.segments is not None:
        seen = seen & (sequence.segments[:, :, None] == sequence.segments[:, None])
    shares = jax.nn.softmax(jnp.where(seen[:, None, None], scores, -jnp.inf), axis=-1).astype(value.dtype)
    mixed = named(jnp.einsum("bkgst,bkth->bkgsh", shares, value), ATTENTION)
    return (mixed.transpose(0, 3, 1, 2, 4).reshape(batch * positions, -1) @ out).reshape(x.shape)


def _fused(projected: jax.Array, out: jax.Array, heads: Heads, sequence: Sequence) -> jax.Array:
    rows = (heads.queries_per_kv_head + 2) * heads.head_dim
    shape = HeadShape(projected.shape[1] // rows, heads.queries_per_kv_head, heads.head_dim)
    turn = (sequence.rotation.cos, sequence.rotation.sin)
    return fused_attention(projected, out, turn, sequence.segments, shape=shape, interpret=False)


def _splash(projected: jax.Array, heads: Heads, sequence: Sequence) -> jax.Array:
    """[B, K (G + 2) H, S] to [B, K, G, S, H], by JAX's kernel for several query heads on one key head."""
    batch, _, positions = projected.shape
    grouped = projected.reshape(batch, -1, heads.queries_per_kv_head + 2, heads.head_dim, positions)
    query, key, value = grouped[:, :, :-2], grouped[:, :, -2], grouped[:, :, -1]
    query, key = rotate(query, sequence.rotation, -2), rotate(key, sequence.rotation, -2)
    kernel = _splash_kernel(positions, heads.queries_per_kv_head)
    # The kernel takes positions before heads, and turns them back in memory by itself.
    query, key, value = (jnp.swapaxes(part, -1, -2) for part in (query * heads.head_dim**-0.5, key, value))
    over_kv_heads: Any = jax.vmap(kernel, in_axes=(0, 0, 0, None))
    if sequence.segments is None:
        return jax.vmap(over_kv_heads, in_axes=(0, 0, 0, None))(query, key, value, None)
    segments = splash_kernel.SegmentIds(sequence.segments, sequence.segments)
    return jax.vmap(over_kv_heads)(query, key, value, segments)


def _splash_kernel(positions: int, queries: int) -> splash_kernel.SplashAttentionKernel:
    block = next((block for block in range(SPLASH_BLOCK, 0, -LANES) if positions % block == 0), None)
    if block is None:
        raise InvalidSpec(
            f"training.sequence_length must be a multiple of {LANES} for attention on TPU, got {positions}; change it,"
            " or set training.attention to reference"
        )
    minor = splash_kernel.QKVLayout.SEQ_MINOR
    sizes = splash_kernel.BlockSizes(
        **dict.fromkeys(("block_q", "block_kv", "block_q_dkv", "block_kv_dkv", "block_q_dq", "block_kv_dq"), block),
        q_layout=minor,
        k_layout=minor,
        v_layout=minor,
    )
    mask = splash_mask.MultiHeadMask([splash_mask.CausalMask((positions, positions))] * queries)
    return splash_kernel.make_splash_mqa_single_device(mask=mask, block_sizes=sizes, residual_checkpoint_name=ATTENTION)
