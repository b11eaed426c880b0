"""Moves weights and gradients between devices, inside a shard_map over the whole mesh.

There are three movements with their derivatives: gathering a matrix from shards and scattering its gradient back
(within a slice), and sums over the devices that hold the same shard (between slices). `weights` decides which weight
moves when.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp

type Axes = tuple[str, ...]

SCATTERED_ELEMENTS = 8_000_000
"""Largest number of elements of a shard that a reduce-scatter moves at once. Compiled for v6e, one of [16, 8016, 2048]
became a full all-reduce and a slice of it, which moves twice the bytes. One of [8, 64, 14336] did not, which is an
expert matrix of Mixtral 8x7B on 64 devices."""


SUBLANES = 16
"""Number of rows of a TPU's register in bfloat16. Compiled for v6e, a tiled reduce-scatter of parts of 16 rows stayed
one, and one of parts of 56 rows became an all-reduce."""


@partial(jax.custom_vjp, nondiff_argnums=(1, 2, 3))
def gather(shard: jax.Array, axes: Axes, dimension: int, dtype: jnp.dtype) -> jax.Array:
    """Gather the full matrix in `dtype` from every device's part of its `dimension`.

    Its gradient is summed over `axes`, and each device gets its own part in float32.
    """
    shard = shard.astype(dtype)
    return shard if jax.lax.axis_size(axes) == 1 else jax.lax.all_gather(shard, axes, axis=dimension, tiled=True)


def _gather_backward(axes: Axes, dimension: int, dtype: jnp.dtype, _: None, gradient: jax.Array) -> tuple[jax.Array]:
    return (reduce_scatter(gradient.astype(dtype), axes, dimension).astype(jnp.float32),)


gather.defvjp(lambda shard, *fixed: (gather(shard, *fixed), None), _gather_backward)


def reduce_scatter(gradient: jax.Array, axes: Axes, dimension: int) -> jax.Array:
    """Sum `gradient` over `axes`. Each device keeps its part of `dimension`."""
    devices = jax.lax.axis_size(axes)
    if devices == 1:
        return gradient
    # Without the barrier, XLA moves the reshape below into the matrix product that makes the gradient, and copies an
    # operand of that product: 4 % of a step of Llama-3.1-8B on v5p with the outputs of matrix products kept.
    gradient = jax.lax.optimization_barrier(gradient)
    before, rows, after = gradient.shape[:dimension], gradient.shape[dimension], gradient.shape[dimension + 1 :]
    own = rows // devices
    if dimension and own % SUBLANES == 0:
        # Blocks of rows of each expert's matrix would be copied to the front first.
        return jax.lax.psum_scatter(gradient, axes, scatter_dimension=dimension, tiled=True)
    counts = (n for n in range(1, own + 1) if own % n == 0 and gradient.size // devices // n <= SCATTERED_ELEMENTS)
    pieces = next(counts, own)
    # This is untiled on blocks of rows, because the tiled form becomes an all-reduce on TPU for some shapes.
    blocks = gradient.reshape(*before, devices, pieces, own // pieces, *after)
    parts = [
        jax.lax.psum_scatter(blocks.take(piece, axis=dimension + 1), axes, scatter_dimension=dimension)
        for piece in range(pieces)
    ]
    return parts[0] if pieces == 1 else jnp.concatenate(parts, axis=dimension)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def summed_gradient(shard: jax.Array, pending: jax.Array | None, axes: Axes, dtype: jnp.dtype) -> jax.Array:
    """Return `shard` unchanged. Its gradient plus `pending` from earlier parts of the batch is summed over `axes` in
    `dtype`, the only time that it leaves the slice."""
    return shard


def _summed_backward(
    axes: Axes, dtype: jnp.dtype, pending: jax.Array | None, gradient: jax.Array
) -> tuple[jax.Array, jax.Array | None]:
    total = gradient if pending is None else gradient + pending
    summed = jax.lax.psum(total.astype(dtype), axes).astype(jnp.float32)
    return summed, None if pending is None else jnp.zeros_like(pending)


summed_gradient.defvjp(lambda shard, pending, *_: (shard, pending), _summed_backward)


def own_part(array: jax.Array, axes: Sequence[str], dimension: int) -> jax.Array:
    """Return this device's part of `dimension` of an array that all devices along `axes` hold in full."""
    for axis in axes:
        size = array.shape[dimension] // jax.lax.axis_size(axis)
        array = jax.lax.dynamic_slice_in_dim(array, jax.lax.axis_index(axis) * size, size, dimension)
    return array
