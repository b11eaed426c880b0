"""Restoring when the hosts of the first replica read for all, on eight devices of one process."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from workloads.training import restore
from workloads.training.mesh import AXES, FSDP
from workloads.training.restore import Restore, on_devices, sending, sent

SMALL_CHUNK = 512
ROWS, COLUMNS = 230, 16
BYTES_PER_DEVICE = 4 * ROWS * COLUMNS // 2


def leaf(shape: tuple[int, ...], *spec: str | None, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    """Return a shape on four replicas of two devices."""
    mesh = Mesh(np.array(jax.devices()).reshape(4, 1, 2, 1), AXES)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, PartitionSpec(*spec)))


@pytest.fixture(scope="module")
def shapes() -> dict[str, jax.ShapeDtypeStruct]:
    return {
        "matrix": leaf((ROWS, COLUMNS), None, FSDP),
        "rows": leaf((2 * ROWS, COLUMNS), FSDP),
        "half": leaf((ROWS, COLUMNS), None, FSDP, dtype=jnp.bfloat16),
        "step": leaf((), dtype=jnp.int32),
    }


def value(shape: jax.ShapeDtypeStruct) -> np.ndarray:
    drawn = np.random.default_rng(0).standard_normal(shape.shape) * 100
    return np.where(drawn < 0, -0.0, drawn).astype(shape.dtype)


def bits(array: Any) -> bytes:
    return np.asarray(array).tobytes()


def read(shapes: Any) -> Any:
    return jax.tree.map(lambda shape: jax.device_put(value(shape), shape.sharding), shapes)


@pytest.mark.parametrize("once_from_replicas", [1, 4])
def test_every_replica_holds_bit_by_bit_what_the_first_one_read(
    once_from_replicas: int, shapes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restore, "CHUNK_BYTES", SMALL_CHUNK)
    asked: list[Any] = []

    def read_and_tell(own: Any) -> Any:
        asked.append(own)
        return read(own)

    one = Restore(shapes, once_from_replicas)
    found = one.spread(one.read(read_and_tell))
    assert [leaf.sharding.device_set for leaf in jax.tree.leaves(asked)] == [{*jax.devices()[:2]}] * len(shapes)
    for name, array in found.items():
        assert array.sharding == shapes[name].sharding
        for shard in array.addressable_shards:
            assert bits(shard.data) == bits(value(shapes[name])[shard.index]), (name, shard.device)


def test_fewer_replicas_read_for_themselves(shapes: Any) -> None:
    one = Restore(shapes, 5)
    found = one.read(lambda own: read(own) if own is shapes else pytest.fail("other shapes"))
    assert one.spread(found) is found


def test_arrays_are_sent_in_their_own_memory_and_two_chunks(shapes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "CHUNK_BYTES", SMALL_CHUNK)
    memory = sending(shapes["matrix"]).lower(shapes["matrix"]).compile().memory_analysis()
    assert memory is not None
    assert memory.alias_size_in_bytes == memory.output_size_in_bytes == BYTES_PER_DEVICE
    assert memory.temp_size_in_bytes < 2.5 * SMALL_CHUNK < BYTES_PER_DEVICE / 5


def test_shards_move_to_the_first_replica_and_from_there_to_all(shapes: Any) -> None:
    devices = jax.tree.leaves(shapes)[0].sharding.mesh.devices.flat
    whole = read(shapes)
    # The device 5 has what the slot 0 needs, and the device 2 what the slot 1 needs.
    moves = ((2, 1), (5, 0))

    def held(leaf: jax.ShapeDtypeStruct, array: jax.Array) -> jax.Array:
        shards = {shard.device: shard.data for shard in array.addressable_shards}
        own = {devices[reader]: jax.device_put(shards[devices[slot]], devices[reader]) for reader, slot in moves}
        return on_devices(leaf, own)

    found = sent(jax.tree.map(held, shapes, whole), moves)
    for name, array in found.items():
        for shard in array.addressable_shards:
            assert bits(shard.data) == bits(value(shapes[name])[shard.index]), (name, shard.device)
