"""Fragments of the weights, which slices exchange one after the other (Streaming DiLoCo, see `outer_loop`).

Fragment f of n has every n-th row, from row f on, of the part of each array that a device holds. A row is a layer of
the stacked layers, which makes the strided pattern of https://arxiv.org/abs/2501.18512, or a row of a table, or an
element of a norm's scale. So all fragments are about equally large, whatever the size of the tables.
"""

from collections.abc import Iterator, Sequence
from math import prod

import jax
import numpy as np

from workloads.training.layout import Tree
from workloads.training.restore import shards_by_device
from workloads.training.slice_program import Shards


class Fragments(Shards):
    """The fragments of a tree of float32 arrays, each as one vector of what this host holds."""

    def __init__(self, shapes: Tree, count: int):
        """`shapes` has the shape and the sharding of each array, and `count` is the number of fragments."""
        super().__init__(shapes, np.dtype(np.float32))
        self._rows = [slice(number, None, count) for number in range(count)]
        self.sizes = [sum(map(prod, self._shapes(number))) for number in range(count)]
        """Number of elements of each fragment."""

    def take(self, tree: Tree, number: int) -> np.ndarray:
        """Return a fragment of `tree` as a new vector. Only its rows leave the devices."""
        if self._alone:
            return self.vector(tree)
        rows = self._rows[number]
        return np.concatenate([np.asarray(shard[rows]).ravel() for shard in self.device_arrays(tree)])

    def tree(self, vectors: Sequence[np.ndarray]) -> Tree:
        """Return a new tree on the devices from the vectors of all fragments, which may change later."""
        arrays = self.empty()
        for number, vector in enumerate(vectors):
            for array, part in zip(arrays, self._cut(vector, number), strict=True):
                array[self._rows[number]] = part
        return self.put(arrays)

    def put_into(self, tree: Tree, number: int, vector: np.ndarray) -> Tree:
        """Return `tree` with one fragment replaced by `vector`, which may change when the tree is ready."""
        if self._alone:
            return self.tree([vector])
        rows, parts = self._rows[number], self._cut(vector, number)
        leaves: list[jax.Array] = []
        for leaf, pieces in zip(jax.tree.leaves(tree), self._pieces, strict=True):
            held = shards_by_device(leaf)
            shards: list[jax.Array] = []
            for piece in pieces:
                part = next(parts)
                shards += [held[device].at[rows].set(part) for device in piece.devices]
            leaves.append(jax.make_array_from_single_device_arrays(leaf.shape, leaf.sharding, shards))
        return jax.tree.unflatten(self._structure, leaves)

    @property
    def _alone(self) -> bool:
        """Whether one fragment is everything."""
        return len(self._rows) == 1

    def _shapes(self, number: int) -> list[tuple[int, ...]]:
        """Return the shape of a fragment's part of each shard."""
        rows, shapes = self._rows[number], [piece.shape for pieces in self._pieces for piece in pieces]
        return [(len(range(first)[rows]), *others) for first, *others in shapes]

    def _cut(self, vector: np.ndarray, number: int) -> Iterator[np.ndarray]:
        """Yield the part of each shard that the vector of a fragment has."""
        start = 0
        for shape in self._shapes(number):
            stop = start + prod(shape)
            yield vector[start:stop].reshape(shape)
            start = stop
