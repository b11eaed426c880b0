"""The forward kernel of causal attention: all query heads of one kv head, one block of queries at a time.

Blocks are processed in the order of the sequence, and each keeps its rotated key and its value in VMEM for later blocks
of queries, so z is read once. The softmax is computed online in float32.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from workloads.training.kernels.blocks import (
    LANES,
    MASKED,
    HeadShape,
    Pair,
    Ref,
    Sizes,
    causal,
    causal_cost,
    product,
    rotate,
    within_segments,
)

PRODUCTS = 2
"""Number of matrix products per query head: scores and weighted values."""


class _Scratch(NamedTuple):
    keys: Ref
    """Rotated keys [S, H]."""
    values: Ref
    """Values [H, S]."""
    scores: Ref
    """Scores [G, keys, queries] of the next block of keys."""


class _Softmax(NamedTuple):
    """Online softmax of one head's block of queries over the blocks of keys so far."""

    peak: jax.Array
    total: jax.Array
    weighted: jax.Array

    def with_block(self, peak: jax.Array, weights: jax.Array, value: jax.Array) -> "_Softmax":
        decay = jnp.exp2(self.peak - peak)
        return _Softmax(
            peak,
            self.total * decay + weights.sum(axis=0, keepdims=True),
            self.weighted * decay + product(value, weights.astype(value.dtype)),
        )


def attention_forward(
    z: jax.Array, rotation: Pair, segments: jax.Array | None, shape: HeadShape, interpret: bool
) -> Pair:
    """Return mixed values [B, K*G*H, S] and the base-2 logsumexp of the scores [B, K, G, 1, S]."""
    sizes, width = Sizes.of(z), shape.head_dim
    batch, length, block = sizes.sequences, sizes.length, sizes.block
    cos_or_sin = pl.BlockSpec((width // 2, block), lambda b, k, i: (0, i))
    ids = None if segments is None else segments[:, None]
    out = (
        jax.ShapeDtypeStruct((batch, shape.kv_heads, shape.group, width, length), z.dtype),
        jax.ShapeDtypeStruct((batch, shape.kv_heads, shape.group, 1, length), jnp.float32),
    )

    def rows(count: int) -> pl.BlockSpec:
        return pl.BlockSpec((1, 1, count, width, block), lambda b, k, i: (b, k, 0, 0, i))

    mixed, logsumexp = pl.pallas_call(
        partial(_kernel, sizes=sizes, shape=shape),
        grid=(batch, shape.kv_heads, sizes.blocks),
        in_specs=[
            rows(shape.rows),
            (cos_or_sin, cos_or_sin),
            None if ids is None else pl.BlockSpec((1, 1, length), lambda b, k, i: (b, 0, 0)),
        ],
        out_specs=(rows(shape.group), pl.BlockSpec((1, 1, shape.group, 1, block), lambda b, k, i: (b, k, 0, 0, i))),
        out_shape=out,
        scratch_shapes=[
            _Scratch(
                keys=pltpu.VMEM((length, width), z.dtype),
                values=pltpu.VMEM((width, length), z.dtype),
                scores=pltpu.VMEM((shape.group, block, block), jnp.float32),
            )
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary"),
            vmem_limit_bytes=forward_vmem_bytes(z, shape),
        ),
        cost_estimate=causal_cost(PRODUCTS, sizes, shape, [z, *rotation, *out, *([] if ids is None else [ids])]),
        interpret=interpret,
        name="causal_attention_forward",
    )(z.reshape(batch, shape.kv_heads, shape.rows, width, length), rotation, ids)
    return mixed.reshape(batch, -1, length), logsumexp


def forward_vmem_bytes(z: jax.Array, shape: HeadShape) -> int:
    """Return the VMEM in bytes that the kernel needs: scratch, the blocks in transfer, and twice the scores for spills
    of the compiler."""
    sizes, number = Sizes.of(z), z.dtype.itemsize
    keys_and_values = sizes.length * (max(shape.head_dim, LANES) + shape.head_dim) * number
    blocks = 2 * (shape.rows + shape.group) * shape.head_dim * sizes.block * number
    # These are cosine, sine and logsumexp in float32, where a row takes the eight rows of a register, and segments.
    statistics = 2 * 4 * ((shape.head_dim + 8 * shape.group) * sizes.block + 8 * sizes.length)
    return keys_and_values + blocks + statistics + 3 * (shape.group + 2) * 4 * sizes.block**2


def _kernel(
    z: Ref,
    rotation: tuple[Ref, Ref],
    segments: Ref | None,
    mixed: Ref,
    logsumexp: Ref,
    scratch: _Scratch,
    *,
    sizes: Sizes,
    shape: HeadShape,
) -> None:
    here, cos_sin = pl.program_id(2), (rotation[0][...], rotation[1][...])
    tokens = sizes.tokens(here)
    scratch.keys[tokens, :] = rotate(z[0, 0, shape.group], cos_sin).T.astype(z.dtype)
    scratch.values[:, tokens] = z[0, 0, shape.group + 1]
    queries = [(rotate(z[0, 0, head], cos_sin) * shape.score_scale).astype(z.dtype) for head in range(shape.group)]

    def score(head: int, index: jax.Array | int) -> jax.Array:
        keys = sizes.tokens(index)
        scores = within_segments(product(scratch.keys[keys, :], queries[head]), segments, keys, tokens)
        scratch.scores[head] = scores
        return scores.max(axis=0, keepdims=True)

    def add_block(index: jax.Array, heads: list[tuple[_Softmax, jax.Array]]) -> list[tuple[_Softmax, jax.Array]]:
        value, after = scratch.values[:, sizes.tokens(index)], []
        for head, (softmax, block_peak) in enumerate(heads):
            peak = jnp.maximum(softmax.peak, block_peak)
            weights = jnp.exp2(scratch.scores[head] - peak)
            # The next block is scored by the matrix units while the vector units compute this block's exponentials.
            next_peak = score(head, index + 1)
            after.append((softmax.with_block(peak, weights, value), next_peak))
        return after

    nothing = _Softmax(
        jnp.full((1, sizes.block), MASKED), jnp.zeros((1, sizes.block)), jnp.zeros((shape.head_dim, sizes.block))
    )
    heads = jax.lax.fori_loop(0, here, add_block, [(nothing, score(head, 0)) for head in range(shape.group)])
    for head, (softmax, _) in enumerate(heads):
        scores = causal(scratch.scores[head])
        peak = jnp.maximum(softmax.peak, scores.max(axis=0, keepdims=True))
        peak, total, weighted = softmax.with_block(peak, jnp.exp2(scores - peak), scratch.values[:, tokens])
        mixed[0, 0, head] = (weighted / total).astype(mixed.dtype)
        logsumexp[0, 0, head] = peak + jnp.log2(total)
