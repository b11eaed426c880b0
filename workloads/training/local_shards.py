"""The shards of a training state in one host's pod: their file, and the way of each to the devices that need it.

A slot is the position of a device in its replica. Devices of the same slot hold the same shards, in all replicas. A pod
has the shards of its own devices, which keep their slots as long as it lives.
"""

from collections.abc import Collection, Iterator
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
    """The devices that read their shards from their own pods, and how all devices get theirs."""

    reads: tuple[int, ...]
    """Positions in the mesh of the devices that read."""
    moves: Moves | None
    """Positions of the devices that read, and the slots of what they read. `None` if all devices read their own
    shards."""

    def readers(self, mesh: Mesh, replicas: Collection[int]) -> set[int]:
        """Return the processes that read what the devices of these replicas hold."""
        slots = _slot_count(mesh)
        return {
            mesh.devices.flat[position].process_index
            for position in self.reads
            if self.moves is not None or position // slots in replicas
        }


def plan(holders: Collection[int], mesh: Mesh) -> Plan | None:
    """Return how all devices of `mesh` get their shards if the pods of the processes `holders` have theirs. `None` if
    none of these pods has the shards of some slot."""
    slots, owners = _slot_count(mesh), [device.process_index for device in mesh.devices.flat]
    own = [position for position, owner in enumerate(owners) if owner in holders]
    if len(own) == len(owners):
        return Plan(tuple(own), None)
    readers = {position % slots: position for position in reversed(own)}
    if len(readers) < slots:
        return None
    moves = sorted((position, slot) for slot, position in readers.items())
    return Plan(tuple(position for position, _ in moves), tuple(moves))


class Shards:
    """The shards of arrays of certain shapes on this host's devices and in files."""

    def __init__(self, shapes: Tree):
        self._shapes = shapes
        self._leaves: list[Any] = jax.tree.leaves(shapes)
        self.mesh: Mesh = self._leaves[0].sharding.mesh

    def copies(self, state: Tree) -> list[np.ndarray]:
        """Return copies of the shards on this host's devices, in the order of a file."""
        held = [shards_by_device(leaf) for leaf in jax.tree.leaves(state)]
        shards = [held[number][self._devices[slot]] for number, slot, _, _ in self._blocks()]
        for shard in shards:
            shard.copy_to_host_async()
        # The memory of a CPU device is this host's, and the next step reuses it.
        on_host = self.mesh.devices.flat[0].platform == "cpu"
        return [np.array(shard) if on_host else np.asarray(shard) for shard in shards]

    def read(self, file: Path, reads: Collection[int]) -> Tree:
        """Return arrays with the shards of this host's devices at the positions `reads` from their file, and zeros on
        the others.

        Raises:
            ValueError: the file has another size.
            OSError: it cannot be read.
        """
        slots = _slot_count(self.mesh)
        wanted = {
            device: position % slots
            for position, device in enumerate(self.mesh.devices.flat)
            if device.process_index == jax.process_index() and position in reads
        }
        places = self._places(file) if wanted else {}
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

    def _blocks(self) -> Iterator[tuple[int, int, tuple[int, ...], int]]:
        """Yield the blocks of a file: number of the array, a slot that holds the block, its part of the array, and its
        bytes."""
        for number, leaf in enumerate(self._leaves):
            size = prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
            parts: dict[tuple[int, ...], int] = {}
            for slot in self._devices:
                parts.setdefault(self._part(number, slot), slot)
            yield from ((number, slot, part, size) for part, slot in parts.items())

    def _places(self, file: Path) -> dict[tuple[int, tuple[int, ...]], tuple[int, int]]:
        """Return start and size of each block of a file, by the array's number and the part."""
        places: dict[tuple[int, tuple[int, ...]], tuple[int, int]] = {}
        start = 0
        for number, _, part, size in self._blocks():
            places[number, part] = (start, size)
            start += size
        if (found := file.stat().st_size) != start:
            raise ValueError(f"{file.name} must have {start} bytes, got {found}")
        return places


def _slot_count(mesh: Mesh) -> int:
    return mesh.devices.size // mesh.shape[REPLICA]
