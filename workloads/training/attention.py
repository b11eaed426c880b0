"""Computes causal attention of one layer, from the normed input to the output projection.

It selects the implementation for `training.attention`, and has the plain one. Those with kernels are in
`tpu_attention`.

Dimensions: B sequences, S positions, D embed, K kv heads, G query heads of each, H head. Under tensor parallelism, K is
the number of kv heads of a device. The columns of `query_key_value` [D, K (G + 2) H] are, for each kv head, its G query
heads, its key and its value.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp

from workloads.spec import Attention, ModelSpec
from workloads.training.adapters import Matrix, product
from workloads.training.pointwise import Norm, Rotation, rotate, soft_capped
from workloads.training.remat import ATTENTION, PROJECTION, named


@dataclass(frozen=True)
class Heads:
    """Sizes, limits and implementation of attention."""

    queries_per_kv_head: int
    head_dim: int
    kernel: Attention
    """Kernel that computes attention. It is `auto` only until `attention_trial` has chosen one."""
    score_dim: int | None = None
    """Scores are divided by the square root of this number. Default: `head_dim`."""
    soft_cap: float | None = None
    """Limit of scores. Default: no limit."""
    window: int | None = None
    """Number of tokens that a position attends to, including itself. Default: all tokens before it."""

    @classmethod
    def of(cls, model: ModelSpec, kernel: Attention) -> Self:
        """Return the sizes for the layers of `model` without a window."""
        return cls(
            model.queries_per_kv_head, model.head_dim, kernel, model.score_dim, soft_cap=model.attention_soft_cap
        )

    @property
    def score_scale(self) -> float:
        return (self.score_dim or self.head_dim) ** -0.5


class HeadNorms(NamedTuple):
    """Weights that normalise queries and keys, each over its head [H]."""

    norm: Norm
    query: jax.Array
    key: jax.Array


@dataclass(frozen=True)
class Sequence:
    """Facts of the positions of the input."""

    rotation: Rotation
    segments: jax.Array | None
    """Segments, int32 [B, S]. A position attends to earlier ones of its own segment. `None` if there is one segment."""


def attend(
    x: jax.Array,
    query_key_value: Matrix,
    out: Matrix,
    heads: Heads,
    sequence: Sequence,
    norms: HeadNorms | None = None,
) -> jax.Array:
    """Compute attention [B, S, D] of x [B, S, D], projected by `query_key_value` and `out` [K G H, D]."""
    if heads.kernel == "auto":
        raise ValueError("training.attention is auto: choose a kernel first")
    if heads.kernel != "reference":
        # Pallas is imported late, because it takes a while and is needed only on TPUs.
        from workloads.training.tpu_attention import attend_by_kernel

        return attend_by_kernel(x, query_key_value, out, heads, sequence, norms)
    # XLA has fast code on CPU for matrix products of two dimensions, or batches of them.
    batch, positions, embed = x.shape
    projected = named(product(x.reshape(-1, embed), query_key_value), PROJECTION)
    grouped = projected.reshape(batch, positions, -1, heads.queries_per_kv_head + 2, heads.head_dim)
    mixed = named(mix_plainly(grouped.transpose(0, 2, 3, 1, 4), heads, sequence, norms), ATTENTION)
    return product(mixed.transpose(0, 3, 1, 2, 4).reshape(batch * positions, -1), out).reshape(x.shape)


def mix_plainly(grouped: jax.Array, heads: Heads, sequence: Sequence, norms: HeadNorms | None = None) -> jax.Array:
    """Mix values by attention. Return [B, K, G, S, H] from the queries, key and value of each kv head
    [B, K, G + 2, S, H]."""
    positions = grouped.shape[-2]
    query, key, value = grouped[:, :, :-2], grouped[:, :, -2], grouped[:, :, -1]
    query, key = normed(query, key, norms, -1)
    query, key = rotate(query, sequence.rotation, -1), rotate(key, sequence.rotation, -1)
    scores = jnp.einsum("bkgsh,bkth->bkgst", query * heads.score_scale, key, preferred_element_type=jnp.float32)
    if heads.soft_cap:
        scores = soft_capped(scores, heads.soft_cap)
    places = jnp.arange(positions)
    seen = (places[:, None] >= places[None])[None]
    if heads.window:
        seen = seen & (places[:, None] - places[None] < heads.window)[None]
    if sequence.segments is not None:
        seen = seen & (sequence.segments[:, :, None] == sequence.segments[:, None])
    shares = jax.nn.softmax(jnp.where(seen[:, None, None], scores, -jnp.inf), axis=-1).astype(value.dtype)
    return jnp.einsum("bkgst,bkth->bkgsh", shares, value)


def normed(query: jax.Array, key: jax.Array, norms: HeadNorms | None, head_axis: int) -> tuple[jax.Array, jax.Array]:
    """Return queries and keys, normalised over `head_axis` if the model does so."""
    if norms is None:
        return query, key
    return norms.norm(query, norms.query, head_axis), norms.norm(key, norms.key, head_axis)
