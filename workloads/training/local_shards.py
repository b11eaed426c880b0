"""The shards of a training state on one host's node: their file, and the way of each to the devices that need it.

A slot is the position of a device in its replica. Devices of the same slot hold the same shards, in all replicas.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from workloads.training.layout import Split, Tree
from workloads.training.mesh import REPLICA
from workloads.training.restore import Moves, on_devices, shards_by_device


@dataclass(frozen=True)
class Plan:
    """The shards that devices read from their own nodes, and how they get to all devices."""

    reads: Mapping[int, int]
    """Slot whose shards a device reads, by the device's position in the mesh."""
    moves: Moves | None
    """Positions of the devices that read, and the slots of what they read. `None` if all devices read their own
    shards."""


def plan(held: Sequence[Collection[int]], mesh: Mesh) -> Plan | None:
    """Return how all devices of `mesh` get their shards if the node of each process has those of the slots `held`.
    `None` if no node has the shards of some slot."""
    slots = _slot_count(mesh)
    owners = [device.process_index for device in mesh.devices.flat]
    if all(position % slots in held[owner] for position, owner in enumerate(owners)):
        return Plan({position: position % slots for position in range(len(owners))}, None)
    positions: dict[int, list[int]] = {}
    for position, owner in enumerate(owners):
        positions.setdefault(owner, []).append(position)
    readers: dict[int, int] = {}
    for owner, own in positions.items():
        lacking = [slot for slot in held[owner] if slot not in readers]
        # A host of a smaller mesh may hold more than its devices can read.
        readers |= dict(zip(lacking, own, strict=False))
    if len(readers) < slots:
        return None
    reads = {position: slot for slot, position in readers.items()}
    return Plan(reads, tuple(sorted(reads.items())))


class Shards:
    """The shards of arrays of certain shapes on this host's devices and in files."""

    def __init__(self, shapes: Tree):
        self._shapes = shapes
        self._leaves: list[Any] = jax.tree.leaves(shapes)
        self.mesh: Mesh = self._leaves[0].sharding.mesh

    @cached_property
    def layout(self) -> list[Any]:
        """The mesh without its replicas, and the arrays, as in JSON. Files are only for arrays of the same layout."""
        named = jax.tree_util.tree_leaves_with_path(self._shapes)
        arrays = [
            [jax.tree_util.keystr(path), *leaf.shape, str(leaf.dtype), str(leaf.sharding.spec)] for path, leaf in named
        ]
        return [[*self.mesh.devices.shape[1:]], arrays]

    @cached_property
    def own_slots(self) -> tuple[int, ...]:
        """Slots of this host's devices."""
        return tuple(self._devices)

    @property
    def bytes(self) -> int:
        """Bytes of the shards of this host's devices, each counted once."""
        return sum(size for *_, size in self._blocks(self.own_slots))

    def copies(self, state: Tree) -> list[np.ndarray]:
        """Return copies of the shards on this host's devices, in the order of a file."""
        held = [shards_by_device(leaf) for leaf in jax.tree.leaves(state)]
        shards = [held[number][self._devices[slot]] for number, slot, _, _ in self._blocks(self.own_slots)]
        for shard in shards:
            shard.copy_to_host_async()
        # The memory of a CPU device is this host's, and the next step reuses it.
        on_host = self.mesh.devices.flat[0].platform == "cpu"
        return [np.array(shard) if on_host else np.asarray(shard) for shard in shards]

    def read(self, file: Path, slots: Collection[int], reads: Mapping[int, int]) -> Tree:
        """Return arrays with what `reads` says on this host's devices, from a file with the shards of `slots`. Devices
        that read nothing have zeros.

        Raises:
            ValueError: the file has another size.
            OSError: it cannot be read.
        """
        wanted = {
            device: reads[position]
            for position, device in enumerate(self.mesh.devices.flat)
            if device.process_index == jax.process_index() and position in reads
        }
        places = self._places(file, slots) if wanted else {}
        content = np.memmap(file, np.uint8, "r") if wanted else np.empty(0, np.uint8)

        def leaf_on_devices(number: int, leaf: Any) -> jax.Array:
            shape = leaf.sharding.shard_shape(leaf.shape)

            def shard(slot: int) -> np.ndarray:
                start, size = places[number, self._part(number, slot)]
                return content[start : start + size].view(leaf.dtype).reshape(shape)

            # Otherwise a CPU device would use the file as its memory.
            put = {device: jax.device_put(shard(slot), device, may_alias=False) for device, slot in wanted.items()}
            return on_devices(leaf, put)

        arrays = [leaf_on_devices(number, leaf) for number, leaf in enumerate(self._leaves)]
        return jax.block_until_ready(jax.tree.unflatten(jax.tree.structure(self._shapes), arrays))

    @cached_property
    def _devices(self) -> dict[int, Any]:
        """One of this host's devices for each of their slots."""
        slots, found = _slot_count(self.mesh), dict[int, Any]()
        for position, device in enumerate(self.mesh.devices.flat):
            if device.process_index == jax.process_index():
                found.setdefault(position % slots, device)
        return dict(sorted(found.items()))

    def _part(self, number: int, slot: int) -> tuple[int, ...]:
        """Return which part of array `number` the devices of a slot hold."""
        sizes = self.mesh.devices.shape[1:]
        at = dict(zip(self.mesh.axis_names[1:], np.unravel_index(slot, sizes), strict=True))
        return tuple(int(at[axis]) for axis in Split(self._leaves[number].sharding.spec).axes)

    def _blocks(self, slots: Collection[int]) -> Iterator[tuple[int, int, tuple[int, ...], int]]:
        """Yield the blocks of a file with the shards of `slots`: number of the array, a slot that holds the block,
        its part of the array, and its bytes."""
        for number, leaf in enumerate(self._leaves):
            size = prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
            parts: dict[tuple[int, ...], int] = {}
            for slot in slots:
                parts.setdefault(self._part(number, slot), slot)
            yield from ((number, slot, part, size) for part, slot in parts.items())

    def _places(self, file: Path, slots: Collection[int]) -> dict[tuple[int, tuple[int, ...]], tuple[int, int]]:
        """Return start and size of each block of a file, by the array's number and the part."""
        places: dict[tuple[int, tuple[int, ...]], tuple[int, int]] = {}
        start = 0
        for number, _, part, size in self._blocks(slots):
            places[number, part] = (start, size)
            start += size
        if (found := file.stat().st_size) != start:
            raise ValueError(f"{file.name} must have {start} bytes, got {found}")
        return places


def _slot_count(mesh: Mesh) -> int:
    return mesh.devices.size // mesh.shape[REPLICA]
