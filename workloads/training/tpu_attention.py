"""Computes causal attention of one layer with a TPU kernel: JAX's splash attention, or `kernels`.

Dimensions and columns are the same as in `attention`, which chooses the implementation.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from math import ceil
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash_kernel
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as splash_mask

from workloads.training.adapters import Matrix, product
from workloads.training.attention import HeadNorms, Heads, Sequence, normed
from workloads.training.failures import InvalidSpec
from workloads.training.kernels.attention import HeadShape, fused_attention
from workloads.training.kernels.forward import LANES
from workloads.training.pointwise import rotate
from workloads.training.remat import ATTENTION, KEYS_SCOPE, PROJECTION, named

SPLASH_BLOCKS = {"splash": 1024, "splash-2048": 2048}
"""Largest block of positions of splash attention. Blocks are smaller if it does not divide the sequence."""


def attend_by_kernel(
    x: jax.Array,
    query_key_value: Matrix,
    out: Matrix,
    heads: Heads,
    sequence: Sequence,
    norms: HeadNorms | None,
) -> jax.Array:
    """Compute attention like `attention.attend`."""
    # Positions come last, as the kernels need, because heads of 64 would fill only half of a TPU's 128 lanes.
    turned, back = partial(jnp.einsum, "bsd,df->bfs"), partial(jnp.einsum, "bds,df->bfs")
    projected = named(product(x, query_key_value, turned, back), PROJECTION)

    # This is in a separate jit, because JAX rounds values that are kept for the backward pass and also used elsewhere
    # to the type that they already have, which is a useless pass over memory. It does so only at the outermost level.
    @jax.jit
    def mix(projected: jax.Array, out: Matrix) -> jax.Array:
        mixed = mix_by_kernel(projected, heads, sequence, norms)
        if mixed.ndim == 3:
            return product(mixed, out, partial(jnp.einsum, "bfs,fd->bsd"))

        def by_heads(mixed: jax.Array, out: jax.Array) -> jax.Array:
            return jnp.einsum("bkgsh,kghd->bsd", mixed, out.reshape(*mixed.shape[1:3], heads.head_dim, -1))

        return product(mixed, out, by_heads)

    return mix(projected, out)


def mix_by_kernel(projected: jax.Array, heads: Heads, sequence: Sequence, norms: HeadNorms | None = None) -> jax.Array:
    """Mix values by attention. `projected` is [B, K (G + 2) H, S].

    The result is [B, K G H, S] with the fused kernel and [B, K, G, S, H] with splash attention.
    """
    return (_fused if heads.kernel == "fused" else _splash)(projected, heads, sequence, norms)


def _fused(projected: jax.Array, heads: Heads, sequence: Sequence, norms: HeadNorms | None) -> jax.Array:
    """Compute [B, K G H, S] from [B, K (G + 2) H, S] with the fused kernel."""
    if heads.window or heads.soft_cap:
        raise InvalidSpec("training.attention fused has neither windows nor soft cap; set it to splash or reference")
    rows = (heads.queries_per_kv_head + 2) * heads.head_dim
    shape = HeadShape(projected.shape[1] // rows, heads.queries_per_kv_head, heads.head_dim)
    if norms or heads.score_dim:
        query, key, value = _parts(projected, heads)
        query, key = normed(query, key, norms, -2)
        # The kernel divides scores by the root of `head_dim`.
        query = query * (heads.score_scale * heads.head_dim**0.5)
        parts = [query, key[:, :, None], value[:, :, None]]
        projected = jnp.concatenate(parts, axis=2).reshape(projected.shape)
    turn = (sequence.rotation.cos, sequence.rotation.sin)
    return fused_attention(projected, turn, sequence.segments, shape=shape, interpret=False)


def _splash(projected: jax.Array, heads: Heads, sequence: Sequence, norms: HeadNorms | None) -> jax.Array:
    """Compute [B, K, G, S, H] from [B, K (G + 2) H, S] with JAX's kernel for several query heads on one key head."""
    query, key, value = _parts(projected, heads)
    query, key = normed(query, key, norms, -2)
    query, key = rotate(query, sequence.rotation, -2), rotate(key, sequence.rotation, -2)
    positions = projected.shape[2]
    block = _splash_block(positions, SPLASH_BLOCKS[heads.kernel])
    kernel = _splash_kernel(positions, block, heads)
    # The kernel takes positions before heads, and transposes them back in memory.
    query, key, value = (jnp.swapaxes(part, -1, -2) for part in (query * heads.score_scale, key, value))
    over_kv_heads: Any = jax.vmap(kernel, in_axes=(0, 0, 0, None))
    with _windowed(positions, block, heads):
        if sequence.segments is None:
            return jax.vmap(over_kv_heads, in_axes=(0, 0, 0, None))(query, key, value, None)
        segments = splash_kernel.SegmentIds(sequence.segments, sequence.segments)
        return jax.vmap(over_kv_heads)(query, key, value, segments)


def _windowed(positions: int, block: int, heads: Heads) -> AbstractContextManager[object]:
    """Name a kernel that computes only some blocks of keys, because the preflight cannot see its mask."""
    if not heads.window or heads.window >= positions:
        return nullcontext()
    keys = min(positions, (ceil((heads.window - 1) / block) + 1) * block)
    return jax.named_scope(f"{KEYS_SCOPE}{keys}")


def _parts(projected: jax.Array, heads: Heads) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Split [B, K (G + 2) H, S] into queries [B, K, G, H, S], keys and values [B, K, H, S]."""
    batch, _, positions = projected.shape
    grouped = projected.reshape(batch, -1, heads.queries_per_kv_head + 2, heads.head_dim, positions)
    return grouped[:, :, :-2], grouped[:, :, -2], grouped[:, :, -1]


def _splash_block(positions: int, largest: int) -> int:
    block = next((block for block in range(largest, 0, -LANES) if positions % block == 0), None)
    if block is None:
        raise InvalidSpec(
            f"training.sequence_length must be a multiple of {LANES} for attention on TPU, got {positions}; change it,"
            " or set training.attention to reference"
        )
    return block


def _splash_kernel(positions: int, block: int, heads: Heads) -> splash_kernel.SplashAttentionKernel:
    minor = splash_kernel.QKVLayout.SEQ_MINOR
    fused_backward = heads.kernel == "splash-2048"
    names = ["block_q", "block_kv", "block_q_dkv", "block_kv_dkv"]
    names += [] if fused_backward else ["block_q_dq", "block_kv_dq"]
    computed = next(part for part in range(min(block, SPLASH_BLOCKS["splash"]), 0, -LANES) if block % part == 0)
    sizes = splash_kernel.BlockSizes(
        **dict.fromkeys(names, block),
        # Scores of more keys at once do not fit the 32 MiB of VMEM that a program on v5p may use.
        block_kv_compute=computed,
        block_kv_dkv_compute=computed,
        use_fused_bwd_kernel=fused_backward,
        q_layout=minor,
        k_layout=minor,
        v_layout=minor,
    )
    mask = splash_mask.CausalMask((positions, positions))
    if heads.window and heads.window < positions:
        mask = splash_mask.LocalMask((positions, positions), (heads.window - 1, 0), 0)
    return splash_kernel.make_splash_mqa_single_device(
        mask=splash_mask.MultiHeadMask([mask] * heads.queries_per_kv_head),
        block_sizes=sizes,
        residual_checkpoint_name=ATTENTION,
        attn_logits_soft_cap=heads.soft_cap,
    )
