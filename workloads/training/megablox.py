"""Grouped products by JAX's Pallas kernels for TPUs, megablox, with blocks that fit the job's experts.

Dimensions: R rows, E groups, K columns of the rows, N columns of the result.
"""

from dataclasses import dataclass
from functools import partial
from math import prod

import jax
from jax.experimental.pallas.ops.tpu.megablox.gmm import gmm, tgmm

from workloads.training.failures import InvalidSpec
from workloads.training.kernels.forward import LANES

_LARGEST_SIDE = 2048
"""Largest side of a block of a matrix."""
_ROWS = (512, 256, LANES)
"""Numbers of rows of a block, the largest first."""
_LARGEST_WASTE = 1 / 16
"""Largest part of the rows that may be computed twice, because a block with rows of two groups is computed for both."""
_FEWEST_COLUMNS = 256
"""Number of columns from which a TPU multiplies a block of rows in more time than it takes to read the next one."""
_VMEM_SHARE = 0.8
"""Largest share of a kernel's memory for its blocks."""

type Tiling = tuple[int, int, int]
"""Sizes of a block: its rows, its contracted columns and the columns of the result; for the gradient by matrices, its
rows and both sides of the matrix."""


@dataclass(frozen=True)
class Megablox:
    """Multiplies rows [R, K], sorted by group, by their group's matrix of [E, K, N]."""

    vmem_kib: int
    """Memory in KiB that a kernel may use."""
    interpret: bool = False
    """Whether to run the kernels without a TPU, which is slow."""

    def __call__(self, rows: jax.Array, matrices: jax.Array, sizes: jax.Array) -> jax.Array:
        """Return [R, N] for `sizes` of the groups in int32.

        Raises:
            InvalidSpec: R is not a multiple of 128.
        """
        if rows.shape[0] % LANES:
            raise InvalidSpec(
                f"training.expert_products megablox needs a multiple of {LANES} rows on a device (its tokens x"
                f" model.experts.per_token), got {rows.shape[0]}; change the batch, or set it to ragged-dot"
            )
        if any(size % LANES for size in matrices.shape[1:]):
            # The adapters of LoRA are too narrow for blocks.
            return jax.lax.ragged_dot(rows, matrices, sizes)
        return _product(rows, matrices, sizes, self)


@partial(jax.custom_vjp, nondiff_argnums=(3,))
def _product(rows: jax.Array, matrices: jax.Array, sizes: jax.Array, kernel: Megablox) -> jax.Array:
    (count, contracted), vmem = rows.shape, kernel.vmem_kib << 10
    tiling = tiling_of_rows(count, contracted, matrices.shape[2], len(sizes), rows.dtype.itemsize, vmem)
    return gmm(rows, matrices, sizes, rows.dtype, tiling, interpret=kernel.interpret)


type _Kept = tuple[jax.Array, jax.Array, jax.Array]


def _forward(rows: jax.Array, matrices: jax.Array, sizes: jax.Array, kernel: Megablox) -> tuple[jax.Array, _Kept]:
    return _product(rows, matrices, sizes, kernel), (rows, matrices, sizes)


def _backward(kernel: Megablox, kept: _Kept, gradient: jax.Array) -> tuple[jax.Array, jax.Array, None]:
    rows, matrices, sizes = kept
    itemsize, groups, vmem, interpret = rows.dtype.itemsize, len(sizes), kernel.vmem_kib << 10, kernel.interpret
    (count, contracted), columns = rows.shape, gradient.shape[1]
    back = tiling_of_rows(count, columns, contracted, groups, itemsize, vmem)
    # The kernel transposes blocks of the matrices. `ragged_dot` has whole matrices transposed in memory.
    by_rows = gmm(gradient, matrices, sizes, rows.dtype, back, transpose_rhs=True, interpret=interpret)
    across = tiling_of_matrices(count, contracted, columns, groups, itemsize, vmem)
    by_matrices = tgmm(rows.swapaxes(0, 1), gradient, sizes, matrices.dtype, across, interpret=interpret)
    return by_rows, by_matrices, None


_product.defvjp(_forward, _backward)


def tiling_of_rows(rows: int, contracted: int, columns: int, groups: int, itemsize: int, vmem: int) -> Tiling:
    """Return the blocks for rows [R, K] by [E, K, N].

    A block has all of K if it fits, so that a group's part of its matrix is read once and stays. Otherwise each block
    of rows reads it again.
    """
    for parts in range(1, contracted // LANES + 1):
        part, rest = divmod(contracted, parts)
        if rest or part % LANES:
            continue
        for height in _heights(rows, groups):
            for width in _sides(columns):
                operands = height * part + part * width + height * width
                enough = width >= min(columns, _FEWEST_COLUMNS)
                if enough and 2 * itemsize * operands + 4 * height * width <= _VMEM_SHARE * vmem:
                    return height, part, width
    return LANES, LANES, LANES


def tiling_of_matrices(rows: int, contracted: int, columns: int, groups: int, itemsize: int, vmem: int) -> Tiling:
    """Return the blocks for the gradient [E, K, N] by matrices, from rows [R, K] and gradients [R, N]."""
    height = _heights(rows, groups)[0]
    pairs = [(one, other) for one in _sides(contracted) for other in _sides(columns)]
    for one, other in sorted(pairs, key=prod, reverse=True):
        # The kernel also has both blocks of rows in float32.
        if (4 + 2 * itemsize) * one * other + (4 + 2 * itemsize) * height * (one + other) <= _VMEM_SHARE * vmem:
            return height, one, other
    return LANES, LANES, LANES


def _heights(rows: int, groups: int) -> list[int]:
    """Return the heights of blocks that suit groups of this size, the largest first."""
    few = [height for height in _ROWS if rows % height == 0 and (groups - 1) * height <= _LARGEST_WASTE * rows]
    return few or [LANES]


def _sides(size: int) -> list[int]:
    """Return the sides of blocks that divide `size`, the largest first."""
    return [side for side in range(_LARGEST_SIDE, 0, -LANES) if size % side == 0]
