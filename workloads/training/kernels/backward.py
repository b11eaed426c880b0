"""The backward kernel of causal attention: one query head at a time, all its tokens in VMEM.

Gradients by query, key and value leave in the layout of z, one head's rows per step of the grid: each query
head's as soon as it is done, key's and value's after the last query head of their group.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from workloads.training.kernels.blocks import (
    LN_2,
    HeadShape,
    Pair,
    Ref,
    Sizes,
    masked,
    product,
    rotate,
    rotate_back,
    rotation_of,
)


def attention_backward(z, rotation, segments, mixed, logsumexp, d_mixed, shape: HeadShape, interpret: bool):
    """Gradient by z."""
    sizes, (heads, group, width) = Sizes.of(z), (shape.kv_heads, shape.group, shape.head_dim)
    length, batch = sizes.length, sizes.sequences

    def row(of):
        return pl.BlockSpec((1, 1, 1, width, length), lambda b, k, r: (b, k, of(r), 0, 0))

    query = row(lambda r: jnp.minimum(r, group - 1))
    half = pl.BlockSpec((width // 2, length), lambda b, k, r: (0, 0), pipeline_mode=pl.Buffered(1))
    ids = ids_specs = None
    if segments is not None:
        ids = (segments[:, :, None], segments[:, None, :])
        ids_specs = (
            pl.BlockSpec((1, length, 1), lambda b, k, r: (b, 0, 0)),
            pl.BlockSpec((1, 1, length), lambda b, k, r: (b, 0, 0)),
        )
    z = z.reshape(batch, heads, shape.rows, width, length)
    by_query = (batch, heads, group, width, length)
    like = lambda dtype: pltpu.VMEM((width, length), dtype)  # noqa: E731
    d_z = pl.pallas_call(
        partial(_kernel, sizes=sizes, shape=shape),
        grid=(batch, heads, shape.rows),
        in_specs=[
            query,
            row(lambda r: group),
            row(lambda r: group + 1),
            (half, half),
            ids_specs,
            query,
            pl.BlockSpec((1, 1, group, length), lambda b, k, r: (b, k, 0, 0)),
            query,
        ],
        out_specs=row(lambda r: r),
        out_shape=jax.ShapeDtypeStruct(z.shape, z.dtype),
        scratch_shapes=[
            like(z.dtype),
            like(z.dtype),
            like(jnp.float32),
            like(jnp.float32),
            like(jnp.float32),
            pltpu.VMEM((1, length), jnp.float32),
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary"), vmem_limit_bytes=110 << 20
        ),
        interpret=interpret,
        name="causal_attention_backward",
    )(z, z, z, rotation, ids, mixed.reshape(by_query), logsumexp, d_mixed.reshape(by_query))
    return d_z.reshape(batch, -1, length)


def _kernel(
    query,
    key,
    value,
    rotation,
    segments,
    mixed,
    logsumexp,
    d_mixed,
    d_z,
    queries,
    keys,
    d_query,
    d_key,
    d_value,
    mean,
    *,
    sizes: Sizes,
    shape: HeadShape,
):
    row = pl.program_id(2)

    def each_block(work):
        jax.lax.fori_loop(0, sizes.count, lambda index, _: work(index, sizes.window(index)), None)

    @pl.when(row == 0)
    def _start_kv_head():
        def start(index, tokens):
            keys[:, tokens] = rotate(key[0, 0, 0, :, tokens], rotation_of(rotation, tokens)).astype(keys.dtype)
            d_key[:, tokens] = jnp.zeros((shape.head_dim, sizes.block))
            d_value[:, tokens] = jnp.zeros((shape.head_dim, sizes.block))

        each_block(start)

    @pl.when(row < shape.group)
    def _query_head():
        def start(index, tokens):
            rotated = rotate(query[0, 0, 0, :, tokens], rotation_of(rotation, tokens)) * shape.score_scale
            queries[:, tokens] = rotated.astype(queries.dtype)
            d_query[:, tokens] = jnp.zeros((shape.head_dim, sizes.block))
            both = d_mixed[0, 0, 0, :, tokens].astype(jnp.float32) * mixed[0, 0, 0, :, tokens].astype(jnp.float32)
            mean[:, tokens] = both.sum(axis=0, keepdims=True)

        each_block(start)

        def key_block(key_index, key_tokens):
            key_rows = keys[:, key_tokens]
            key_columns = key_rows.T
            value_columns = value[0, 0, 0, :, key_tokens].T

            def query_block(index, carry, diagonal):
                dk, dv = carry
                tokens = sizes.window(index)
                ids = None if segments is None else (segments[0][0, key_tokens, :], segments[1][0, :, tokens])
                q, do = queries[:, tokens], d_mixed[0, 0, 0, :, tokens]
                scores = masked(product(key_columns, q), diagonal, ids)
                weights = jnp.exp2(scores - logsumexp[0, 0, pl.ds(row, 1), tokens])
                d_weights = product(value_columns, do)
                d_scores = (weights * (d_weights - mean[:, tokens])).astype(q.dtype)
                dv = dv + product(do, weights.astype(q.dtype), (1, 1))
                dk = dk + product(q, d_scores, (1, 1))
                d_query[:, tokens] += product(key_rows, d_scores)
                return dk, dv

            carry = query_block(key_index, (d_key[:, key_tokens], d_value[:, key_tokens]), True)
            carry = jax.lax.fori_loop(key_index + 1, sizes.count, lambda i, c: query_block(i, c, False), carry)
            d_key[:, key_tokens], d_value[:, key_tokens] = carry

        each_block(key_block)

        def finish(index, tokens):
            back = rotate_back(d_query[:, tokens], rotation_of(rotation, tokens)) * shape.head_dim**-0.5
            d_z[0, 0, 0, :, tokens] = back.astype(d_z.dtype)

        each_block(finish)

    @pl.when(row == shape.group)
    def _key_row():
        def finish(index, tokens):
            back = rotate_back(d_key[:, tokens], rotation_of(rotation, tokens)) * LN_2
            d_z[0, 0, 0, :, tokens] = back.astype(d_z.dtype)

        each_block(finish)

    @pl.when(row == shape.group + 1)
    def _value_row():
        def finish(index, tokens):
            d_z[0, 0, 0, :, tokens] = d_value[:, tokens].astype(d_z.dtype)

        each_block(finish)
