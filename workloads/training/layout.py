"""How each weight lies on the mesh, by its name.

Owns the one table from which placement, gathering and the summing of gradients follow.
"""

from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import PartitionSpec

from workloads.training.mesh import AXES, FSDP, STAGE, TENSOR

type Tree = Any
"""A nested dict of arrays, or of what stands for them: shapes, partition specs, shardings."""

type KeyPath = tuple[Any, ...]
"""Keys from the root of a Tree to a leaf."""

BLOCKS = "blocks"
"""Key of the layers, whose weights are stacked on a leading axis."""

_COLUMNS, _ROWS = (FSDP, TENSOR), ((TENSOR, FSDP), None)
_MATRICES: dict[str, tuple[Any, ...]] = {
    "embedding": _ROWS,
    "unembedding": _ROWS,
    "query_key_value": _COLUMNS,
    "out": _ROWS,
    "gate": _COLUMNS,
    "up": _COLUMNS,
    "down": _ROWS,
    "router": (FSDP, None),
    # Adapters, whose rank is never split: A as the rows of their matrix, B as its columns.
    **dict.fromkeys(("query_key_value_a", "gate_a", "up_a"), (FSDP, None)),
    **dict.fromkeys(("query_key_value_b", "gate_b", "up_b"), (None, (TENSOR, FSDP))),
    **dict.fromkeys(("out_a", "down_a"), _ROWS),
    **dict.fromkeys(("out_b", "down_b"), (None, FSDP)),
}
"""Of the last two dimensions: what follows `tensor` by columns is followed by what has these as rows. All else,
the norm scales, is whole on every device."""


@dataclass(frozen=True)
class Split:
    """How one weight is split; a leaf of its own for jax.tree."""

    spec: PartitionSpec

    @property
    def is_matrix(self) -> bool:
        """Whether it is gathered before use and its gradient is summed on the way; other weights are small."""
        return FSDP in self.axes

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes whose devices hold different parts of it."""
        return tuple(name for part in self.spec if part for name in ((part,) if isinstance(part, str) else part))

    @property
    def repeated_over(self) -> tuple[str, ...]:
        """The mesh axes whose devices hold the same part of it, and a share of its gradient each."""
        return tuple(axis for axis in AXES if axis not in self.axes)

    @property
    def gathered_over(self) -> tuple[str, ...]:
        """The mesh axes along which its parts are put together. A layer works on its columns and heads alone; the
        tables' use knows no such part."""
        return (FSDP,) if STAGE in self.axes else (TENSOR, FSDP)

    @property
    def gathered_dimension(self) -> int:
        """Of one layer's weight."""
        parts = self.spec[1:] if STAGE in self.axes else self.spec
        return next(number for number, part in enumerate(parts) if part and FSDP in part)


def splits(parameters: Tree) -> Tree:
    """A Split for each weight of `parameters`, which may be shapes."""

    def split(path: KeyPath, leaf: jax.ShapeDtypeStruct) -> Split:
        layers = (STAGE,) if path[0].key == BLOCKS else ()
        matrix = _MATRICES.get(path[-1].key)
        if matrix is None:
            return Split(PartitionSpec(*layers))
        between = (None,) * (len(leaf.shape) - len(layers) - len(matrix))
        return Split(PartitionSpec(*layers, *between, *matrix))

    return jax.tree_util.tree_map_with_path(split, parameters)


def partition_specs(parameters: Tree) -> Tree:
    """The PartitionSpec of each weight."""
    return jax.tree.map(lambda split: split.spec, splits(parameters))
