from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from workloads.spec import MeshSpec
from workloads.training.fingerprint import Take, compile_fingerprints, differing
from workloads.training.mesh import AXES, FSDP, STAGE, TENSOR

SPLITS = {
    "rows": PartitionSpec(FSDP),
    "layers": PartitionSpec(STAGE, FSDP, TENSOR),
    "table": PartitionSpec((TENSOR, FSDP)),
    "whole": PartitionSpec(),
    "step": PartitionSpec(),
}
ARRAYS = {
    "rows": np.linspace(-1, 1, 16 * 3, dtype=np.float32).reshape(16, 3),
    "layers": np.arange(2 * 8 * 6).reshape(2, 8, 6).astype(jnp.bfloat16),
    "table": np.linspace(0, 1, 8 * 3, dtype=np.float32).reshape(8, 3),
    "whole": np.ones(7, np.float32),
    "step": np.int32(11),
}

ROWS_SPLIT = MeshSpec(replica=1, fsdp=8)


def mesh(spec: MeshSpec) -> Mesh:
    devices = np.array(jax.devices()[: spec.devices]).reshape(tuple(spec.sizes.values()))
    return Mesh(devices, AXES, axis_types=(AxisType.Auto,) * len(AXES))


def placed(arrays: dict[str, Any], spec: MeshSpec) -> dict[str, jax.Array]:
    where = mesh(spec)
    return {name: jax.device_put(array, NamedSharding(where, SPLITS[name])) for name, array in arrays.items()}


@pytest.mark.parametrize(
    "spec",
    [
        MeshSpec(replica=2, fsdp=4),
        MeshSpec(replica=4, fsdp=2),
        MeshSpec(replica=1, fsdp=8),
        MeshSpec(replica=2, fsdp=2, tensor=2),
        MeshSpec(replica=1, stage=2, fsdp=2, tensor=2),
    ],
    ids=str,
)
def test_fingerprints_are_the_same_however_the_arrays_lie(spec: MeshSpec) -> None:
    (expected,) = compile_fingerprints(alone := placed(ARRAYS, MeshSpec(replica=1, fsdp=1)))(alone)
    assert compile_fingerprints(split := placed(ARRAYS, spec))(split) == [expected] * spec.replica
    assert list(expected) == ["layers", "rows", "step", "table", "whole"]


@pytest.fixture(scope="module")
def rows() -> dict[str, jax.Array]:
    return placed({"rows": ARRAYS["rows"]}, ROWS_SPLIT)


@pytest.fixture(scope="module")
def take(rows: dict[str, jax.Array]) -> Take:
    return compile_fingerprints(rows)


@given(st.integers(0, ARRAYS["rows"].size - 1), st.integers(0, 31))
def test_a_flipped_bit_changes_both_halves(take: Take, rows: dict[str, jax.Array], element: int, bit: int) -> None:
    flipped = ARRAYS["rows"].copy()
    flipped.reshape(-1).view(np.uint32)[element] ^= np.uint32(1 << bit)
    (before,), (after,) = take(rows), take(placed({"rows": flipped}, ROWS_SPLIT))
    assert before["rows"][:8] != after["rows"][:8]
    assert before["rows"][8:] != after["rows"][8:]


@given(st.sets(st.integers(0, ARRAYS["rows"].size - 1), min_size=2, max_size=2), st.integers(0, 31))
def test_the_same_bit_flipped_in_two_elements_does_not_cancel(
    take: Take, rows: dict[str, jax.Array], elements: set[int], bit: int
) -> None:
    flipped = ARRAYS["rows"].copy()
    flipped.reshape(-1).view(np.uint32)[list(elements)] ^= np.uint32(1 << bit)
    (before,), (after,) = take(rows), take(placed({"rows": flipped}, ROWS_SPLIT))
    assert before["rows"][:8] != after["rows"][:8]
    assert before["rows"][8:] != after["rows"][8:]


@given(st.permutations(range(16)).filter(lambda order: order != list(range(16))))
def test_rows_in_another_order_change_both_halves(take: Take, rows: dict[str, jax.Array], order: list[int]) -> None:
    moved = {"rows": np.take(ARRAYS["rows"], order, axis=0)}
    (before,), (after,) = take(rows), take(placed(moved, ROWS_SPLIT))
    assert before["rows"][:8] != after["rows"][:8]
    assert before["rows"][8:] != after["rows"][8:]


def test_a_replica_that_holds_something_else_is_named(rows: dict[str, jax.Array]) -> None:
    whole = jax.device_put(np.asarray(rows["rows"]), NamedSharding(mesh(MeshSpec(replica=4, fsdp=1)), PartitionSpec()))
    shards = [shard.data for shard in whole.addressable_shards]
    shards[2] = shards[2].at[3, 1].add(1e-6)
    drifted = {"rows": jax.make_array_from_single_device_arrays(whole.shape, whole.sharding, shards)}
    replicas = compile_fingerprints(drifted)(drifted)
    (told,) = differing(replicas[0], replicas)
    assert told.startswith(f"rows (expected {replicas[0]['rows']}, got {replicas[2]['rows']} in replica 2)")
