"""Causal attention with its rotary embedding, as one forward and one backward kernel for TPU.

It is tested in interpret mode on CPU against a plain reference, and compiled for TPU, but has never run on one. This
module has the backward kernel, the gradient rule, the results that a remat policy may keep, and the checks of shapes.

The backward kernel takes one query head at a time, with all its tokens in VMEM. The gradient by z is written in the
layout of z, one head's rows per step of the grid. A query head's rows are written when it is done. Those of key and
value, which add up over the query heads of their group, are written in two steps after the last query head.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from workloads.training.failures import InvalidSpec
from workloads.training.kernels.forward import (
    LANES,
    LOG2_E,
    HeadShape,
    Pair,
    Ref,
    Sizes,
    attention_forward,
    causal,
    causal_cost,
    forward_vmem_bytes,
    product,
    product_with_transposed,
    rotate,
    rotate_back,
    within_segments,
)
from workloads.training.remat import ATTENTION

PRODUCTS = 5
"""Number of matrix products per query head: the scores, and the gradients by weights, value, key and query."""

SPILL_BYTES = 8 << 20
"""VMEM for the compiler's own use in a kernel."""


class Kept(NamedTuple):
    """Results that the forward pass keeps for the backward pass."""

    z: Any
    rotation: Any
    segments: Any
    mixed: Any
    logsumexp: Any


class _Inputs(NamedTuple):
    query: Any
    key: Any
    value: Any
    rotation: Any
    segments: Any
    mixed: Any
    logsumexp: Any
    d_mixed: Any


class _Scratch(NamedTuple):
    """Scratch memory for one head, [H, S] each. Gradients are by the rotated query and key, in float32."""

    query: Any
    """Rotated and scaled query."""
    key: Any
    """Rotated key."""
    d_query: Any
    d_key: Any
    d_value: Any
    mean: Any
    """Mean of the weights' gradients, weighted by the weights, [1, S]."""


def attention_backward(kept: Kept, d_mixed: jax.Array, shape: HeadShape, interpret: bool) -> jax.Array:
    """Return the gradient by z."""
    sizes, z = Sizes.of(kept.z), kept.z
    by_row = (sizes.sequences, shape.kv_heads, shape.rows, shape.head_dim, sizes.length)
    by_query = (sizes.sequences, shape.kv_heads, shape.group, shape.head_dim, sizes.length)
    heads = z.reshape(by_row)
    inputs = _Inputs(
        query=heads,
        key=heads,
        value=heads,
        rotation=kept.rotation,
        segments=None if kept.segments is None else kept.segments[:, None],
        mixed=kept.mixed.reshape(by_query),
        logsumexp=kept.logsumexp,
        d_mixed=d_mixed.reshape(by_query),
    )
    touched = [z, z, *kept.rotation, kept.mixed, kept.logsumexp, d_mixed, *jax.tree.leaves(inputs.segments)]
    d_z = pl.pallas_call(
        partial(_kernel, sizes=sizes, shape=shape),
        grid=by_row[:3],
        in_specs=[_input_specs(sizes, shape, kept.segments is not None)],
        out_specs=_row(sizes, shape, lambda row: row),
        out_shape=jax.ShapeDtypeStruct(by_row, z.dtype),
        scratch_shapes=[_scratch_shapes(sizes, shape, z.dtype)],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary"),
            vmem_limit_bytes=backward_vmem_bytes(z, shape),
        ),
        cost_estimate=causal_cost(PRODUCTS, sizes, shape, touched),
        interpret=interpret,
        name="causal_attention_backward",
    )(inputs)
    return d_z.reshape(z.shape)


def backward_vmem_bytes(z: jax.Array, shape: HeadShape) -> int:
    """Return the VMEM in bytes that the kernel needs for all tokens of a sequence."""
    row_blocks, f32_rows, rotation = 2 * 6 + 2, 3, 1
    per_token = shape.head_dim * (row_blocks * z.dtype.itemsize + 4 * (f32_rows + rotation))
    # These are logsumexp and segments twice, and the mean once. A row takes the eight rows of a register.
    statistics = 4 * 8 * (2 + 2 + 1)
    return Sizes.of(z).length * (per_token + statistics) + SPILL_BYTES


def _row(sizes: Sizes, shape: HeadShape, row_of: Callable[[Any], Any]) -> pl.BlockSpec:
    """Return the block of one head's rows of z or of the mixed values."""
    return pl.BlockSpec((1, 1, 1, shape.head_dim, sizes.length), lambda b, k, row: (b, k, row_of(row), 0, 0))


def _input_specs(sizes: Sizes, shape: HeadShape, segmented: bool) -> _Inputs:
    query = _row(sizes, shape, lambda row: jnp.minimum(row, shape.group - 1))
    # It is the same for the whole grid, so one copy is enough.
    cos_or_sin = pl.BlockSpec(
        (shape.head_dim // 2, sizes.length), lambda b, k, row: (0, 0), pipeline_mode=pl.Buffered(1)
    )
    return _Inputs(
        query=query,
        key=_row(sizes, shape, lambda row: shape.group),
        value=_row(sizes, shape, lambda row: shape.group + 1),
        rotation=(cos_or_sin, cos_or_sin),
        segments=pl.BlockSpec((1, 1, sizes.length), lambda b, k, row: (b, 0, 0)) if segmented else None,
        mixed=query,
        logsumexp=pl.BlockSpec(
            (1, 1, 1, 1, sizes.length), lambda b, k, row: (b, k, jnp.minimum(row, shape.group - 1), 0, 0)
        ),
        d_mixed=query,
    )


def _scratch_shapes(sizes: Sizes, shape: HeadShape, dtype: Any) -> _Scratch:
    low, wide = (pltpu.VMEM((shape.head_dim, sizes.length), of) for of in (dtype, jnp.float32))
    return _Scratch(low, low, wide, wide, wide, pltpu.VMEM((1, sizes.length), jnp.float32))


def _kernel(inputs: _Inputs, d_z: Ref, scratch: _Scratch, *, sizes: Sizes, shape: HeadShape) -> None:
    row = pl.program_id(2)

    def rotation(tokens: Any) -> Pair:
        cos, sin = inputs.rotation
        return cos[:, tokens], sin[:, tokens]

    def each_block(work: Callable[[Any], None]) -> None:
        jax.lax.fori_loop(0, sizes.blocks, lambda index, _: work(sizes.tokens(index)), None)

    def write(tokens: Any, gradient: jax.Array) -> None:
        d_z[0, 0, 0, :, tokens] = gradient.astype(d_z.dtype)

    @pl.when(row == 0)
    def _start_kv_head() -> None:
        @each_block
        def _start(tokens: Any) -> None:
            scratch.key[:, tokens] = rotate(inputs.key[0, 0, 0, :, tokens], rotation(tokens)).astype(d_z.dtype)
            scratch.d_key[:, tokens] = scratch.d_value[:, tokens] = jnp.zeros((shape.head_dim, sizes.block))

    @pl.when(row < shape.group)
    def _query_head() -> None:
        @each_block
        def _start(tokens: Any) -> None:
            query = rotate(inputs.query[0, 0, 0, :, tokens], rotation(tokens)) * shape.score_scale
            scratch.query[:, tokens] = query.astype(d_z.dtype)
            scratch.d_query[:, tokens] = jnp.zeros((shape.head_dim, sizes.block))
            mixed, d_mixed = (x[0, 0, 0, :, tokens].astype(jnp.float32) for x in (inputs.mixed, inputs.d_mixed))
            scratch.mean[:, tokens] = (mixed * d_mixed).sum(axis=0, keepdims=True)

        jax.lax.fori_loop(0, sizes.blocks, partial(_key_block, inputs, scratch, sizes), None)
        each_block(
            lambda tokens: write(
                tokens, rotate_back(scratch.d_query[:, tokens], rotation(tokens)) * shape.head_dim**-0.5
            )
        )

    @pl.when(row == shape.group)
    def _key() -> None:
        # The query in scratch includes the scale, so it is too large by LOG2_E here.
        each_block(lambda tokens: write(tokens, rotate_back(scratch.d_key[:, tokens], rotation(tokens)) / LOG2_E))

    @pl.when(row == shape.group + 1)
    def _value() -> None:
        each_block(lambda tokens: write(tokens, scratch.d_value[:, tokens]))


def _key_block(inputs: _Inputs, scratch: _Scratch, sizes: Sizes, index: jax.Array, _: None) -> None:
    """Add the gradients of one block of keys with all blocks of queries that attend to it."""
    keys = sizes.tokens(index)
    key = scratch.key[:, keys]
    key_by_token, value_by_token = key.T, inputs.value[0, 0, 0, :, keys].T

    def add(queries: Any, mask: Callable[[jax.Array], jax.Array]) -> None:
        query, d_mixed = scratch.query[:, queries], inputs.d_mixed[0, 0, 0, :, queries]
        scores = within_segments(mask(product(key_by_token, query)), inputs.segments, keys, queries)
        weights = jnp.exp2(scores - inputs.logsumexp[0, 0, 0, :, queries])
        d_weights = product(value_by_token, d_mixed)
        d_scores = (weights * (d_weights - scratch.mean[:, queries])).astype(query.dtype)
        scratch.d_value[:, keys] += product_with_transposed(d_mixed, weights.astype(query.dtype))
        scratch.d_key[:, keys] += product_with_transposed(query, d_scores)
        scratch.d_query[:, queries] += product(key, d_scores)

    add(keys, causal)
    jax.lax.fori_loop(
        index + 1, sizes.blocks, lambda queries, _: add(sizes.tokens(queries), lambda scores: scores), None
    )


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
