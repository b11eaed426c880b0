"""The split of each weight over the mesh, by its name.

Placement, gathering and the summing of gradients all follow from this table.
"""

from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import PartitionSpec

from workloads.training.mesh import AXES, FSDP, STAGE, TENSOR, axes_of

type Tree = Any
"""A nested dict of arrays, or of their shapes, partition specs or shardings."""

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
    # The rank of adapters is never split. A is split like the rows of its matrix, B like its columns.
    **dict.fromkeys(("query_key_value_a", "gate_a", "up_a"), (FSDP, None)),
    **dict.fromkeys(("query_key_value_b", "gate_b", "up_b"), (None, (TENSOR, FSDP))),
    **dict.fromkeys(("out_a", "down_a"), _ROWS),
    **dict.fromkeys(("out_b", "down_b"), (None, FSDP)),
}
"""Axes that the last two dimensions of each weight are split over. A matrix that is split over `tensor` by columns is
followed by one that is split over it by rows. All other weights, the norm scales, are not split."""


@dataclass(frozen=True)
class Split:
    """The split of one weight. For jax.tree, it is a leaf."""

    spec: PartitionSpec

    @property
    def is_matrix(self) -> bool:
        """Whether it is gathered before use and its gradient is summed on the way. Other weights are small."""
        return FSDP in self.axes

    @property
    def axes(self) -> tuple[str, ...]:
        """Mesh axes whose devices hold different parts of it."""
        return tuple(name for part in self.spec for name in axes_of(part))

    @property
    def repeated_over(self) -> tuple[str, ...]:
        """Mesh axes whose devices hold the same part of it, each with a share of its gradient."""
        return tuple(axis for axis in AXES if axis not in self.axes)

    @property
    def gathered_over(self) -> tuple[str, ...]:
        """Mesh axes along which its parts are gathered. A layer computes with only its own columns and heads. Tables
        are gathered along both axes."""
        return (FSDP,) if STAGE in self.axes else (TENSOR, FSDP)

    @property
    def gathered_dimension(self) -> int:
        """Dimension of one layer's weight along which its parts are gathered."""
        parts = self.spec[1:] if STAGE in self.axes else self.spec
        return next(number for number, part in enumerate(parts) if part and FSDP in part)


def splits(parameters: Tree) -> Tree:
    """Return a Split for each weight of `parameters`, which may be shapes."""

    def split(path: tuple[Any, ...], leaf: jax.ShapeDtypeStruct) -> Split:
        layers = (STAGE,) if path[0].key == BLOCKS else ()
        matrix = _MATRICES.get(path[-1].key)
        if matrix is None:
            return Split(PartitionSpec(*layers))
        between = (None,) * (len(leaf.shape) - len(layers) - len(matrix))
        return Split(PartitionSpec(*layers, *between, *matrix))

    return jax.tree_util.tree_map_with_path(split, parameters)


def partition_specs(parameters: Tree) -> Tree:
    """Return the PartitionSpec of each weight."""
    return jax.tree.map(lambda split: split.spec, splits(parameters))
