"""Computes the two ends of the model that use tables: embedding lookup, and the loss over the vocabulary.

It defines their derivatives. A table's gradient is summed in float32 over the positions of a device. The loss runs in
chunks of positions, so that full logits never exist, and computes its gradients while a chunk's logits exist. A table
with `reduce` None is frozen and gets no gradient.
Dimensions: T positions of a device, D embed, V vocabulary.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from workloads.training.pointwise import soft_capped
from workloads.training.weights import Reduce, Table

LOGITS_BYTES_PER_CHUNK = 1 << 30
"""Largest size of a chunk's logits. Each chunk also reads and writes the table's gradient once."""


def look_up(table: Table, tokens: jax.Array) -> jax.Array:
    """Return the rows of `tokens` (any shape) in the compute type, with a new last dimension D."""
    return _look_up(table.kept, jax.lax.stop_gradient(table.whole), tokens, table.reduce)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _look_up(kept: jax.Array, table: jax.Array, tokens: jax.Array, reduce: Reduce | None) -> jax.Array:
    return table[tokens]


def _look_up_forward(
    kept: jax.Array, table: jax.Array, tokens: jax.Array, reduce: Reduce
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    return table[tokens], (tokens, jnp.zeros_like(table, shape=(table.shape[0], 0)))


def _look_up_backward(
    reduce: Reduce | None, residual: tuple[jax.Array, ...], gradient: jax.Array
) -> tuple[jax.Array | None, None, None]:
    if reduce is None:
        return None, None, None
    tokens, rows = residual
    by_table = jnp.zeros((rows.shape[0], gradient.shape[-1]), jnp.float32)
    return reduce(by_table.at[tokens].add(gradient.astype(jnp.float32))), None, None


_look_up.defvjp(_look_up_forward, _look_up_backward)


@dataclass(frozen=True)
class LossHead:
    """Settings of the loss."""

    soft_cap: float | None
    """Limit of the logits' absolute value. `None` means no limit."""
    z_loss: float
    """Weight of log(Z)^2, where Z is the sum of the exponentials of a position's logits."""
    on_tpu: bool


def summed_loss(
    x: jax.Array, table: Table, targets: jax.Array, weights: jax.Array, head: LossHead
) -> tuple[jax.Array, jax.Array]:
    """Return the loss of x [T, D] for targets [T], summed with weights [T] in float32, and the z-loss in it.

    The loss includes cross-entropy and z-loss. The second value has no gradient.
    """
    whole = jax.lax.stop_gradient(table.whole)
    return _summed_loss(x, table.kept, whole, targets, weights, table.reduce, head)


@partial(jax.custom_vjp, nondiff_argnums=(5, 6))
def _summed_loss(
    x: jax.Array,
    kept: jax.Array,
    table: jax.Array,
    targets: jax.Array,
    weights: jax.Array,
    reduce: Reduce | None,
    head: LossHead,
) -> tuple[jax.Array, jax.Array]:
    def chunk(sums: tuple[jax.Array, jax.Array], part: tuple[jax.Array, ...]) -> tuple[Any, None]:
        x, targets, weights = part
        logits = _logits(x, table, head.soft_cap)
        normaliser = jax.nn.logsumexp(logits, axis=1)
        return _added(sums, normaliser, _picked(logits, _hits(logits, targets)), weights, head), None

    return jax.lax.scan(chunk, (jnp.float32(0), jnp.float32(0)), _chunks(table, x, targets, weights))[0]


def _forward(
    x: jax.Array,
    kept: jax.Array,
    table: jax.Array,
    targets: jax.Array,
    weights: jax.Array,
    reduce: Reduce | None,
    head: LossHead,
) -> tuple[tuple[jax.Array, jax.Array], tuple[jax.Array | None, ...]]:
    def chunk(carry: tuple[Any, Any], part: tuple[jax.Array, ...]) -> tuple[Any, jax.Array]:
        sums, by_table = carry
        x, targets, weights = part
        logits = _logits(x, table, head.soft_cap)
        shares, normaliser = _softmax(logits, head.on_tpu)
        hits = _hits(logits, targets)
        sums = _added(sums, normaliser, _picked(logits, hits), weights, head)
        if head.z_loss:
            shares *= 1 + 2 * head.z_loss * normaliser[:, None]
        by_logits = (shares - hits) * weights[:, None]
        if head.soft_cap:
            by_logits *= 1 - jnp.square(logits / head.soft_cap)
        by_logits = by_logits.astype(table.dtype)
        if reduce is not None:
            by_table += jnp.einsum("tv,td->vd", by_logits, x, preferred_element_type=jnp.float32)
        return (sums, by_table), by_logits @ table

    start = ((jnp.float32(0), jnp.float32(0)), None if reduce is None else jnp.zeros(table.shape, jnp.float32))
    (sums, by_table), by_x = jax.lax.scan(chunk, start, _chunks(table, x, targets, weights))
    return sums, (by_x.reshape(x.shape), None if reduce is None else reduce(by_table))


def _backward(
    reduce: Reduce | None,
    head: LossHead,
    made: tuple[jax.Array | None, ...],
    gradients: tuple[jax.Array, jax.Array],
) -> tuple[Any, ...]:
    return *(None if by is None else (by * gradients[0]).astype(by.dtype) for by in made), None, None, None


_summed_loss.defvjp(_forward, _backward)


def _added(
    sums: tuple[jax.Array, jax.Array], normaliser: jax.Array, picked: jax.Array, weights: jax.Array, head: LossHead
) -> tuple[jax.Array, jax.Array]:
    """Return the loss so far and the z-loss in it, with those of a chunk's positions added."""
    loss, z_loss = sums
    loss += jnp.sum(weights * (normaliser - picked))
    if not head.z_loss:
        return loss, z_loss
    own = head.z_loss * jnp.sum(weights * jnp.square(normaliser))
    return loss + own, z_loss + own


def _logits(x: jax.Array, table: jax.Array, soft_cap: float | None) -> jax.Array:
    logits = jnp.einsum("td,vd->tv", x, table).astype(jnp.float32)
    return soft_capped(logits, soft_cap) if soft_cap else logits


def _softmax(wide: jax.Array, on_tpu: bool) -> tuple[jax.Array, jax.Array]:
    """Return the softmax of each row in float32, and the logarithm of the row's sum of exponentials."""
    if on_tpu:
        # This computes the exponential of each logit twice, so that it is never written to memory: matrix products
        # compute it as they read.
        normaliser = jax.nn.logsumexp(wide, axis=1)
        return jnp.exp(wide - normaliser[:, None]), normaliser
    largest = jnp.max(wide, axis=1, keepdims=True)
    powers = jnp.exp(wide - largest)
    sums = jnp.sum(powers, axis=1, keepdims=True)
    return powers * (1 / sums), (jnp.log(sums) + largest)[:, 0]


def _hits(logits: jax.Array, targets: jax.Array) -> jax.Array:
    """Return a mask of the targets in logits [T, V]."""
    return jax.lax.broadcasted_iota(jnp.int32, logits.shape, 1) == targets[:, None]


def _picked(logits: jax.Array, hits: jax.Array) -> jax.Array:
    """Return the targets' logits in float32.

    They are the same values, in the compute type, as in the normaliser, so that no loss is negative. They are computed
    as a sum over all logits, which the compiler fuses into the pass that reads them for the normaliser.
    """
    return jnp.sum(jnp.where(hits, logits, 0), axis=1, dtype=jnp.float32)


def _chunks(table: jax.Array, *arrays: jax.Array) -> tuple[jax.Array, ...]:
    positions = arrays[0].shape[0]
    row = table.shape[0] * table.dtype.itemsize
    fits = (n for n in range(1, positions) if positions % n == 0 and positions // n * row <= LOGITS_BYTES_PER_CHUNK)
    count = next(fits, positions)
    return tuple(array.reshape(count, -1, *array.shape[1:]) for array in arrays)
