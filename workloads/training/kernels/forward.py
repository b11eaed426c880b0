"""The forward kernel of causal attention: all query heads of one kv head, one block of queries at a time.

It has the common parts of both kernels too: shapes, rotary embedding, masks, products and costs. Every array of a head
is sequence-minor [H, S], so the halves of a rotary embedding are on sublanes. Scores are [keys, queries], so a value
per query is a row.

Blocks are processed in the order of the sequence, and each keeps its rotated key and its value in VMEM for later blocks
of queries, so z is read once. The softmax is computed online in float32.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

type Ref = Any
"""An array in the chip's memory, which Pallas passes to a kernel. Its type is not public."""

type Pair = tuple[jax.Array, jax.Array]
"""Two related arrays."""

LOG2_E = math.log2(math.e)

MASKED = -0.5 * float(jnp.finfo(jnp.float32).max)
"""Score of a masked pair. It is finite, so that a fully masked block gives no NaN."""

BLOCK_LENGTHS = (512, 256, 128)
"""Numbers of queries, and of keys, in a block. The longest one that divides the sequence is used. At 8192 tokens,
blocks of 512 on the diagonal compute 1/16 more than the causal mask needs. With shorter blocks, the compiler's schedule
for v6e grows by more than that."""

LANES = 128
"""Last dimension of a register, https://docs.jax.dev/en/latest/pallas/tpu/details.html."""


@dataclass(frozen=True)
class HeadShape:
    """`kv_heads` heads of keys and values, each with `group` query heads, all of `head_dim` numbers."""

    kv_heads: int
    group: int
    head_dim: int

    @property
    def rows(self) -> int:
        """Number of query heads, key and value of one kv head."""
        return self.group + 2

    @property
    def score_scale(self) -> float:
        """1/sqrt(H) for exponentials to base two, because chips compute 2^x, and e^x takes another multiplication."""
        return LOG2_E / math.sqrt(self.head_dim)


@dataclass(frozen=True)
class Sizes:
    """Sizes of one call: `sequences` of `length` tokens in blocks of `block`."""

    sequences: int
    length: int
    block: int

    @classmethod
    def of(cls, z: jax.Array) -> Self:
        """Return the sizes for z [B, rows, S]."""
        sequences, _, length = z.shape
        return cls(sequences, length, next((block for block in BLOCK_LENGTHS if length % block == 0), length))

    @property
    def blocks(self) -> int:
        return self.length // self.block

    def tokens(self, index: Any) -> Any:
        """Return the slice of the tokens of block `index`."""
        return pl.ds(pl.multiple_of(index * self.block, self.block), self.block)


def causal_cost(products: int, sizes: Sizes, shape: HeadShape, arrays: Sequence[jax.Array | jax.ShapeDtypeStruct]):
    """Return the cost of a kernel with `products` matrix products per query head that reads or writes `arrays` once."""
    scores = sizes.sequences * shape.kv_heads * shape.group * sizes.length**2 // 2
    return pl.CostEstimate(
        flops=2 * products * scores * shape.head_dim,
        transcendentals=scores,
        bytes_accessed=sum(array.size * array.dtype.itemsize for array in arrays),
    )


def rotate(x: jax.Array, rotation: Pair) -> jax.Array:
    """Apply the rotary embedding with cosine and sine [H/2, S] to x [H, S], in float32."""
    (cos, sin), half = rotation, x.shape[0] // 2
    first, second = x[:half].astype(jnp.float32), x[half:].astype(jnp.float32)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin])


def rotate_back(x: jax.Array, rotation: Pair) -> jax.Array:
    """Apply the inverse, which is the transpose, of `rotate`."""
    cos, sin = rotation
    return rotate(x, (cos, -sin))


def product(left: jax.Array, right: jax.Array) -> jax.Array:
    """Multiply [m, n] and [n, p] to [m, p], summed in float32."""
    return jnp.dot(left, right, preferred_element_type=jnp.float32)


def product_with_transposed(left: jax.Array, right: jax.Array) -> jax.Array:
    """Multiply [m, n] and [p, n] to [m, p], summed in float32."""
    return jax.lax.dot_general(left, right, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32)


def causal(scores: jax.Array) -> jax.Array:
    """Mask later keys in the scores [keys, queries] of a block on the diagonal."""
    key, query = (jax.lax.broadcasted_iota(jnp.int32, scores.shape, dimension) for dimension in (0, 1))
    return jnp.where(key <= query, scores, MASKED)


def within_segments(scores: jax.Array, segments: Ref | None, keys: Any, queries: Any) -> jax.Array:
    """Mask scores [keys, queries] between different segments. `segments` is [1, 1, S]."""
    if segments is None:
        return scores
    column = jnp.broadcast_to(segments[0, :, keys], (LANES, scores.shape[0])).T[:, :1]
    return jnp.where(column == segments[0, :, queries], scores, MASKED)


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
