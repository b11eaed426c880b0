"""Describes where a job's devices and arrays are.

The trainer writes it to `placement/<start>.json` of a run from the real mesh and the training state. `mesh_text` and
`mesh_svg` draw it.
"""

from math import prod
from typing import Self

from pydantic import model_validator

from workloads.spec import MeshSpec, SliceSpec, Spec


class PlacedArray(Spec):
    """One array of the training state."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    element_bytes: int
    split: tuple[tuple[str, ...], ...]
    """Mesh axes that each dimension is split over. Missing dimensions at the end are not split."""

    @model_validator(mode="after")
    def _splits_what_it_has(self) -> Self:
        if len(self.split) > len(self.shape):
            raise ValueError(f"{self.name}: expected at most {len(self.shape)} dimensions split, got {len(self.split)}")
        return self

    def shard_shape(self, mesh: MeshSpec) -> tuple[int, ...]:
        """Return the shape of the part that each device holds."""
        axes = [*self.split, *[()] * (len(self.shape) - len(self.split))]
        return tuple(
            -(-size // prod(mesh.sizes[axis] for axis in over)) for size, over in zip(self.shape, axes, strict=True)
        )

    def shard_bytes(self, mesh: MeshSpec) -> int:
        """Return the bytes of the part that each device holds."""
        return prod(self.shard_shape(mesh)) * self.element_bytes

    def split_text(self) -> str:
        """Describe the split, as `- x fsdp x tensor` for an array whose last two dimensions are split."""
        if not any(self.split):
            return "whole on every device"
        axes = [*self.split, *[()] * (len(self.shape) - len(self.split))]
        return " x ".join("·".join(over) or "-" for over in axes)


class Placement(Spec):
    """The mesh of one attempt and the split of its arrays."""

    mesh: MeshSpec
    slices: SliceSpec
    hosts: tuple[int, ...]
    """Host of each position of the mesh, in row-major order. Hosts are numbered through all slices."""
    arrays: tuple[PlacedArray, ...]

    @model_validator(mode="after")
    def _has_a_place_for_all(self) -> Self:
        if not self.slices.devices == self.mesh.devices == len(self.hosts):
            raise ValueError(
                f"expected a host for each device of the mesh, got {len(self.hosts)} for {self.slices.devices} devices"
            )
        if set(self.hosts) != set(range(self.slices.total_hosts)):
            raise ValueError("expected every host of the slices to have devices")
        if any({axis for over in array.split for axis in over} - self.mesh.sizes.keys() for array in self.arrays):
            raise ValueError(f"expected arrays split only over {', '.join(self.mesh.sizes)}")
        return self

    @property
    def state_bytes(self) -> int:
        """Bytes of all arrays on each device."""
        return sum(array.shard_bytes(self.mesh) for array in self.arrays)

    def places(self, host: int) -> list[dict[str, int]]:
        """Return the coordinates of the host's devices by axis."""
        return [self._coordinates(place) for place, owner in enumerate(self.hosts) if owner == host]

    def slice_places(self, number: int) -> list[list[dict[str, int]]]:
        """Return the coordinates of a slice's devices for each host."""
        first = number * self.slices.hosts
        found: dict[int, list[dict[str, int]]] = {host: [] for host in range(first, first + self.slices.hosts)}
        for place, owner in enumerate(self.hosts):
            if owner in found:
                found[owner].append(self._coordinates(place))
        return list(found.values())

    def _coordinates(self, place: int) -> dict[str, int]:
        found: dict[str, int] = {}
        for axis, size in reversed(self.mesh.sizes.items()):
            place, found[axis] = divmod(place, size)
        return dict(reversed(found.items()))


def hosts_in_order(slices: SliceSpec) -> tuple[int, ...]:
    """Return the hosts of a mesh that is laid over the devices in order: slice by slice, host by host."""
    return tuple(place // slices.devices_per_host for place in range(slices.devices))
