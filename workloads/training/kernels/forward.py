"""The forward kernel of causal attention: one block of queries of one kv head at a time.

Blocks arrive in the order of the sequence; each leaves its rotated key and its value in scratch memory for the
blocks of queries behind it, so z is read once.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from workloads.training.kernels.blocks import (
    MASKED,
    HeadShape,
    Pair,
    Ref,
    Sizes,
    masked,
    product,
    rotate,
)

type Softmax = Pair | tuple[jax.Array, jax.Array, jax.Array]


def attention_forward(
    z: jax.Array, rotation: Pair, segments: jax.Array | None, shape: HeadShape, interpret: bool
) -> Pair:
    """Mixed values [B, K*G*H, S] and the base-2 logsumexp [B, K, G, S] of the scores."""
    sizes, (heads, group, width) = Sizes.of(z), (shape.kv_heads, shape.group, shape.head_dim)
    length, block = sizes.length, sizes.block
    half = pl.BlockSpec((width // 2, block), lambda b, k, i: (0, i))
    by_kv_head = lambda rows: pl.BlockSpec((1, 1, rows, width, block), lambda b, k, i: (b, k, 0, 0, i))  # noqa: E731
    ids = ids_specs = None
    if segments is not None:
        ids = (segments[:, :, None], segments[:, None, :])
        ids_specs = (
            pl.BlockSpec((1, length, 1), lambda b, k, i: (b, 0, 0)),
            pl.BlockSpec((1, 1, block), lambda b, k, i: (b, 0, i)),
        )
    mixed, logsumexp = pl.pallas_call(
        partial(_kernel, sizes=sizes, shape=shape),
        grid=(sizes.sequences, heads, sizes.count),
        in_specs=[by_kv_head(shape.rows), (half, half), ids_specs],
        out_specs=[by_kv_head(group), pl.BlockSpec((1, 1, group, block), lambda b, k, i: (b, k, 0, i))],
        out_shape=[
            jax.ShapeDtypeStruct((sizes.sequences, heads, group, width, length), z.dtype),
            jax.ShapeDtypeStruct((sizes.sequences, heads, group, length), jnp.float32),
        ],
        scratch_shapes=[pltpu.VMEM((length, width), z.dtype), pltpu.VMEM((width, length), z.dtype)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel", "arbitrary")),
        interpret=interpret,
        name="causal_attention_forward",
    )(z.reshape(sizes.sequences, heads, shape.rows, width, length), rotation, ids)
    return mixed.reshape(sizes.sequences, -1, length), logsumexp


def _kernel(
    z: Ref,
    rotation: tuple[Ref, Ref],
    segments: tuple[Ref, Ref] | None,
    mixed: Ref,
    logsumexp: Ref,
    keys: Ref,
    values: Ref,
    *,
    sizes: Sizes,
    shape: HeadShape,
) -> None:
    here, group = pl.program_id(2), shape.group
    cos_sin = rotation[0][...], rotation[1][...]
    keys[sizes.window(here), :] = rotate(z[0, 0, group], cos_sin).T.astype(keys.dtype)
    values[:, sizes.window(here)] = z[0, 0, group + 1]
    queries = [(rotate(z[0, 0, head], cos_sin) * shape.score_scale).astype(z.dtype) for head in range(group)]

    def absorb(states, index, diagonal):
        tokens = sizes.window(index)
        ids = None if segments is None else (segments[0][0, tokens, :], segments[1][0])
        key, value = keys[tokens, :], values[:, tokens]
        return [
            _absorb(state, masked(product(key, query), diagonal, ids), value)
            for state, query in zip(states, queries, strict=True)
        ]

    states = [_empty(sizes.block, shape.head_dim) for _ in queries]
    states = jax.lax.fori_loop(0, here, lambda index, states: absorb(states, index, False), states)
    for head, (peak, total, weighted) in enumerate(absorb(states, here, True)):
        mixed[0, 0, head] = (weighted / total).astype(mixed.dtype)
        logsumexp[0, 0, head : head + 1] = peak + jnp.log2(total)


def _empty(block: int, width: int):
    return jnp.full((1, block), MASKED), jnp.zeros((1, block)), jnp.zeros((width, block))


def _absorb(state, scores, value):
    peak, total, weighted = state
    new_peak = jnp.maximum(peak, scores.max(axis=0, keepdims=True))
    weights, decay = jnp.exp2(scores - new_peak), jnp.exp2(peak - new_peak)
    weighted = weighted * decay + product(value, weights.astype(value.dtype))
    return new_peak, total * decay + weights.sum(axis=0, keepdims=True), weighted
