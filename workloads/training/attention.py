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
from workloads.training.kernels.attention import HeadShape, fused_attention
from workloads.training.remat import ATTENTION, PROJECTION, named
from workloads.training.rope import Rotation, rotate

SPLASH_BLOCK = 1024
"""Positions that splash attention works on at once."""


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
    # Positions last, as the kernels like it: heads of 64 would fill half of a TPU's 128 lanes.
    projected = named(jnp.einsum("bsd,df->bfs", x, query_key_value), PROJECTION)
    if heads.kernel == "fused":
        return jnp.einsum("bfs,fd->bsd", _fused(projected, heads, sequence), out)
    mixed = _by_heads(projected, heads, sequence)
    return jnp.einsum("bkgsh,kghd->bsd", mixed, out.reshape(*mixed.shape[1:3], heads.head_dim, -1))


def _fused(projected: jax.Array, heads: Heads, sequence: Sequence) -> jax.Array:
    """[B, K (G + 2) H, S] to [B, K G H, S]."""
    rows = (heads.queries_per_kv_head + 2) * heads.head_dim
    shape = HeadShape(projected.shape[1] // rows, heads.queries_per_kv_head, heads.head_dim)
    turn = sequence.rotation
    return fused_attention(projected, (turn.cos, turn.sin), sequence.segments, shape=shape, interpret=False)


def _by_heads(projected: jax.Array, heads: Heads, sequence: Sequence) -> jax.Array:
    """[B, K (G + 2) H, S] to [B, K, G, S, H]."""
    grouped = projected.reshape(
        projected.shape[0], -1, heads.queries_per_kv_head + 2, heads.head_dim, projected.shape[2]
    )
    query, key, value = grouped[:, :, :-2], grouped[:, :, -2], grouped[:, :, -1]
    query, key = rotate(query, sequence.rotation), rotate(key, sequence.rotation)
    kernel = _splash if heads.kernel == "splash" else _plain
    return kernel(query, key, value, sequence)


def _plain(query: jax.Array, key: jax.Array, value: jax.Array, sequence: Sequence) -> jax.Array:
    """query [B, K, G, H, S], key and value [B, K, H, S] to [B, K, G, S, H]."""
    scores = jnp.einsum("bkghs,bkht->bkgst", query, key, preferred_element_type=jnp.float32)
    places = jnp.arange(query.shape[-1])
    seen = (places[:, None] >= places[None])[None]
    if sequence.segments is not None:
        seen = seen & (sequence.segments[:, :, None] == sequence.segments[:, None])
    scores = jnp.where(seen[:, None, None], scores * query.shape[-2] ** -0.5, -jnp.inf)
    shares = jax.nn.softmax(scores, axis=-1).astype(value.dtype)
    return named(jnp.einsum("bkgst,bkht->bkgsh", shares, value), ATTENTION)


def _splash(query: jax.Array, key: jax.Array, value: jax.Array, sequence: Sequence) -> jax.Array:
    """As `_plain`, by JAX's kernel for several query heads on one key head."""
    positions = query.shape[-1]
    block = min(SPLASH_BLOCK, positions)
    minor = splash_kernel.QKVLayout.SEQ_MINOR
    sizes = splash_kernel.BlockSizes(
        **dict.fromkeys(("block_q", "block_kv", "block_q_dkv", "block_kv_dkv", "block_q_dq", "block_kv_dq"), block),
        q_layout=minor,
        k_layout=minor,
        v_layout=minor,
    )
    mask = splash_mask.MultiHeadMask([splash_mask.CausalMask((positions, positions))] * query.shape[2])
    kernel = splash_kernel.make_splash_mqa_single_device(
        mask=mask, block_sizes=sizes, residual_checkpoint_name=ATTENTION
    )
    # The kernel takes positions before heads, and turns them back in memory by itself.
    query, key, value = (jnp.swapaxes(part, -1, -2) for part in (query * query.shape[-2] ** -0.5, key, value))
    over_kv_heads: Any = jax.vmap(kernel, in_axes=(0, 0, 0, None))
    if sequence.segments is None:
        return jax.vmap(over_kv_heads, in_axes=(0, 0, 0, None))(query, key, value, None)
    segments = splash_kernel.SegmentIds(sequence.segments, sequence.segments)
    return jax.vmap(over_kv_heads)(query, key, value, segments)
