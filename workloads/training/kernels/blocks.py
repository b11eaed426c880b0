"""Common parts of both attention kernels: shapes, rotary embedding, masks, products and costs.

Every array of a head is sequence-minor [H, S], so the halves of a rotary embedding are on sublanes. Scores are
[keys, queries], so a value per query is a row.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

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
