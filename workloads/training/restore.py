"""Reads arrays from storage to all replicas: each host reads its own shards, or the first replica's hosts read for all.

All replicas hold the same arrays, so the bytes to read grow with their number, while a bucket's rate does not. From
`training.read_once_from_replicas` replicas on, only the hosts of the first replica read, and the arrays are sent to the
others over the mesh.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding

from workloads.training.layout import Tree
from workloads.training.mesh import AXES, REPLICA

type Read = Callable[[Tree], Tree]
"""Function that reads arrays of the given shapes and shardings from storage, in every process with a device of them."""

type Moves = tuple[tuple[int, int], ...]
"""Positions of devices in the mesh, in row-major order: those that have read a shard, and those of the first replica
that need it. Each occurs once."""

CHUNK_BYTES = 64 << 20
"""Largest part of a shard to send at once, unless one row of its first dimension is larger. Sending takes twice as much
memory in addition to the arrays."""


@dataclass(frozen=True)
class Restore:
    """Reads arrays of `shapes` from storage to the mesh. They must not be split over replicas."""

    shapes: Tree
    once_from_replicas: int

    def read(self, read: Read) -> Tree:
        """Read this process's part without waiting for other processes.

        The result is only for `spread`, because replicas that do not read have zeros in it.
        """
        return jax.block_until_ready(self._as_first_replica(read) if self._once else read(self.shapes))

    def spread(self, found: Tree) -> Tree:
        """Return the arrays on all replicas from `found`, which is donated. It is a collective of all processes."""
        return sent(found) if self._once else found

    @property
    def _mesh(self) -> Mesh:
        return jax.tree.leaves(self.shapes)[0].sharding.mesh

    @property
    def _once(self) -> bool:
        return self._mesh.shape[REPLICA] >= max(self.once_from_replicas, 2)

    def _as_first_replica(self, read: Read) -> Tree:
        first = Mesh(self._mesh.devices[:1], self._mesh.axis_names, axis_types=self._mesh.axis_types)
        if not first.local_devices:
            return jax.tree.map(lambda leaf: on_devices(leaf, {}), self.shapes)
        there = jax.tree.map(lambda leaf: leaf.update(sharding=NamedSharding(first, leaf.sharding.spec)), self.shapes)
        found = read(there)
        return jax.tree.map(lambda leaf, one: on_devices(leaf, shards_by_device(one)), self.shapes, found)


def shards_by_device(array: jax.Array) -> dict[Any, jax.Array]:
    """Return the shards on this process's devices."""
    return {shard.device: shard.data for shard in array.addressable_shards}


def on_devices(leaf: Any, shards: Mapping[Any, jax.Array]) -> jax.Array:
    """Return the array of the shape `leaf` with these shards on this process's devices, and zeros on the others."""
    shape = leaf.sharding.shard_shape(leaf.shape)
    others = leaf.sharding.addressable_devices - shards.keys()
    zeros = [jnp.zeros(shape, leaf.dtype, device=device) for device in others]
    return jax.make_array_from_single_device_arrays(leaf.shape, leaf.sharding, [*shards.values(), *zeros])


def sent(arrays: Tree, moves: Moves = ()) -> Tree:
    """Return the arrays with the first replica's shards on all replicas, after `moves`. They are donated. It is a
    collective of all processes."""
    programs = {_kind(array): sending(array, moves) for array in jax.tree.leaves(arrays)}
    return jax.block_until_ready(jax.tree.map(lambda array: programs[_kind(array)](array), arrays))


def _kind(array: jax.Array) -> tuple[object, ...]:
    return array.shape, array.dtype, array.sharding


def sending(leaf: Any, moves: Moves = ()) -> jax.stages.Wrapped:
    """Return the program that copies an array such as `leaf` from the first replica to all replicas, in place, after
    `moves` to the first replica."""
    mesh, spec = leaf.sharding.mesh, leaf.sharding.spec

    def send(shard: jax.Array) -> jax.Array:
        return _from_first(jax.lax.ppermute(shard, AXES, moves) if moves else shard)

    local = jax.shard_map(send, mesh=mesh, in_specs=(spec,), out_specs=spec, check_vma=False)
    return jax.jit(local, donate_argnums=0)


def _from_first(shard: jax.Array) -> jax.Array:
    if shard.ndim == 0 or shard.nbytes <= CHUNK_BYTES:
        return first_replica_s(shard)
    rows = max(shard.shape[0] * CHUNK_BYTES // shard.nbytes, 1)

    def send(number: jax.Array, whole: jax.Array) -> jax.Array:
        # The last part may send rows again that were already sent.
        part = jax.lax.dynamic_slice_in_dim(whole, number * rows, rows)
        return jax.lax.dynamic_update_slice_in_dim(whole, first_replica_s(part), number * rows, 0)

    return jax.lax.fori_loop(0, ceil(shard.shape[0] / rows), send, shard)


def first_replica_s(part: jax.Array) -> jax.Array:
    """Return the first replica's part as a sum of integers, because a sum of floats would turn -0.0 into 0.0."""
    bits = jax.lax.bitcast_convert_type(part, jnp.dtype(f"uint{8 * part.dtype.itemsize}"))
    bits = jnp.where(jax.lax.axis_index(REPLICA) == 0, bits, 0)
    return jax.lax.bitcast_convert_type(jax.lax.psum(bits, REPLICA), part.dtype)
