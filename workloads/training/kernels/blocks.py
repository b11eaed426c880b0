"""What both attention kernels say of heads and blocks: shapes, rotary embedding, masks, products, memory.

Every array of a head is sequence-minor [H, S], so the halves of a rotary embedding lie on sublanes, and
scores are [keys, queries], so a value per query is a row.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

type Ref = Any
"""An array in the chip's memory, as Pallas hands it to a kernel; its type is not public."""

type Pair = tuple[jax.Array, jax.Array]
"""Cosine and sine [H/2, ...] of the rotary embedding."""

MASKED = -0.5 * float(jnp.finfo(jnp.float32).max)
"""Score of a pair that may not attend: finite, so that a block in which all is masked makes no NaN."""

LOG2_E = 1.4426950408889634
LN_2 = 0.6931471805599453

BLOCKS = (512, 256, 128)
"""Lengths of a block of queries or keys, best first. Of a causal mask 512 computes 1/16 too much at 8192 tokens,
1024 1/8."""

LANES = 128
"""Last dimension of a tile of memory, https://docs.jax.dev/en/latest/pallas/tpu/details.html."""

VMEM_LIMIT_BYTES = 110 << 20
"""Most that a kernel may ask for, of the 128 MiB of a v6e core; the compiler needs the rest."""


@dataclass(frozen=True)
class HeadShape:
    """The attention heads: each of `kv_heads` has `group` query heads; `head_dim` numbers each."""

    kv_heads: int
    group: int
    head_dim: int

    @property
    def rows(self) -> int:
        """Query heads, key and value of one kv head."""
        return self.group + 2

    @property
    def score_scale(self) -> float:
        """Of query x key, in powers of two: a chip has 2^x, and makes e^x of it by one more multiplication."""
        return LOG2_E / self.head_dim**0.5


@dataclass(frozen=True)
class Sizes:
    """Of one call: `sequences` of `length` tokens, in `count` blocks of `block`."""

    sequences: int
    length: int
    block: int

    @classmethod
    def of(cls, z: jax.Array) -> Self:
        """Of z [B, rows, S]."""
        length = z.shape[2]
        return cls(z.shape[0], length, next((block for block in BLOCKS if length % block == 0), length))

    @property
    def count(self) -> int:
        return self.length // self.block

    def window(self, index: Any) -> Any:
        """The tokens of block `index`."""
        return pl.ds(pl.multiple_of(index * self.block, self.block), self.block)


def rotate(x: jax.Array, rotation: Pair) -> jax.Array:
    """Rotary embedding of x [H, S] on its halves, in float32."""
    (cos, sin), half = rotation, x.shape[0] // 2
    first, second = x[:half].astype(jnp.float32), x[half:].astype(jnp.float32)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin])


def rotate_back(x: jax.Array, rotation: Pair) -> jax.Array:
    """Inverse, and so transpose, of `rotate`."""
    cos, sin = rotation
    return rotate(x, (cos, -sin))


def rotation_of(rotation: tuple[Ref, Ref], tokens: Any) -> Pair:
    """Cosine and sine of `tokens`."""
    cos, sin = rotation
    return cos[:, tokens], sin[:, tokens]


def product(left: jax.Array, right: jax.Array, contract: tuple[int, int] = (1, 0)) -> jax.Array:
    """Matrix product over the named dimension of each, added up in float32."""
    return jax.lax.dot_general(
        left, right, (((contract[0],), (contract[1],)), ((), ())), preferred_element_type=jnp.float32
    )


def masked(scores: jax.Array, diagonal: bool, segments: tuple[jax.Array, jax.Array] | None) -> jax.Array:
    """Scores [keys, queries] of those that may attend: on the diagonal to earlier tokens, within a segment."""
    if diagonal:
        later = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0) > jax.lax.broadcasted_iota(
            jnp.int32, scores.shape, 1
        )
        scores = jnp.where(later, MASKED, scores)
    if segments is not None:
        scores = jnp.where(segments[0] == segments[1], scores, MASKED)
    return scores
