"""JAX's kernels for grouped products with this project's blocks, in an interpreter."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from workloads.training.failures import InvalidSpec
from workloads.training.megablox import Megablox, tiling_of_matrices, tiling_of_rows

pytestmark = pytest.mark.costs(cpu_seconds=10)

KERNEL = Megablox(32 << 10, interpret=True)
MIB = 1 << 20


def drawn(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(len(shape)).normal(size=shape), jnp.float32)


@pytest.mark.parametrize(
    "sizes", [(128, 128, 128), (1, 0, 383), (200, 184, 0)], ids=["blocks", "an empty group", "groups within a block"]
)
def test_products_and_gradients_are_those_of_each_group(sizes: tuple[int, ...]) -> None:
    rows, matrices, groups = drawn(384, 256), drawn(3, 256, 128), jnp.asarray(sizes, jnp.int32)

    def each(rows: jax.Array, matrices: jax.Array) -> jax.Array:
        parts = jnp.split(rows, np.cumsum(sizes)[:-1])
        return jnp.concatenate([part @ matrix for part, matrix in zip(parts, matrices, strict=True)])

    expected, back = jax.vjp(each, rows, matrices)
    got, back_by_kernel = jax.vjp(lambda rows, matrices: KERNEL(rows, matrices, groups), rows, matrices)
    assert np.allclose(got, expected, rtol=1e-4, atol=1e-3)
    for one, other in zip(back_by_kernel(jnp.cos(expected)), back(jnp.cos(expected)), strict=True):
        assert np.allclose(one, other, rtol=1e-4, atol=1e-3)


def test_adapters_that_are_too_narrow_for_blocks_are_multiplied_too() -> None:
    rows, narrow, groups = drawn(128, 256), drawn(2, 256, 8), jnp.asarray([100, 28], jnp.int32)
    assert np.allclose(KERNEL(rows, narrow, groups), jax.lax.ragged_dot(rows, narrow, groups))


def test_rows_that_do_not_fill_blocks_are_refused() -> None:
    with pytest.raises(InvalidSpec, match="ragged-dot"):
        KERNEL(drawn(100, 256), drawn(2, 256, 128), jnp.asarray([50, 50], jnp.int32))


MIXTRAL = {"contracted": 4096, "columns": 14336, "groups": 8}
SMALL_EXPERTS = {"contracted": 2048, "columns": 768, "groups": 128}


@pytest.mark.parametrize("vmem_mib", [16, 32, 64, 96])
@pytest.mark.parametrize("experts", [MIXTRAL, SMALL_EXPERTS], ids=["Mixtral", "small experts"])
def test_blocks_divide_the_matrices_and_fit(experts: dict[str, int], vmem_mib: int) -> None:
    height, part, width = tiling_of_rows(32768, itemsize=2, vmem=vmem_mib * MIB, **experts)
    assert experts["contracted"] % part == experts["columns"] % width == 32768 % height == 0
    assert 4 * (height * part + part * width + height * width) < vmem_mib * MIB
    height, part, width = tiling_of_matrices(32768, itemsize=2, vmem=vmem_mib * MIB, **experts)
    assert experts["contracted"] % part == experts["columns"] % width == 32768 % height == 0
    assert 4 * part * width + 4 * (height * part + height * width + part * width) < vmem_mib * MIB


def test_large_groups_get_larger_blocks_of_rows() -> None:
    def height(rows: int) -> int:
        return tiling_of_rows(rows, itemsize=2, vmem=96 * MIB, **MIXTRAL)[0]

    assert [height(1 << power) for power in (14, 15, 16)] == [128, 256, 512]


def test_a_group_s_part_of_its_matrix_is_read_once_if_it_fits() -> None:
    assert tiling_of_rows(32768, itemsize=2, vmem=96 * MIB, **MIXTRAL)[1:] == (4096, 2048)
    assert tiling_of_rows(32768, 16384, 32768, 8, itemsize=4, vmem=16 * MIB)[1] < 16384
