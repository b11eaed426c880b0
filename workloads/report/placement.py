"""Where a job's devices and arrays are: what the pictures of its mesh are drawn from.

Owns the record `placement/<start>.json` of a run and the arithmetic of shards. The trainer fills it in from the real
mesh and its state; how it looks is up to `mesh_text` and `mesh_svg`.
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
    """Mesh axes that each dimension is split over; missing at the end: whole."""

    @model_validator(mode="after")
    def _splits_what_it_has(self) -> Self:
        if len(self.split) > len(self.shape):
            raise ValueError(f"{self.name}: expected at most {len(self.shape)} dimensions split, got {len(self.split)}")
        return self

    def shard_shape(self, mesh: MeshSpec) -> tuple[int, ...]:
        """What of it each device holds."""
        axes = [*self.split, *[()] * (len(self.shape) - len(self.split))]
        return tuple(
            -(-size // prod(mesh.sizes[axis] for axis in over)) for size, over in zip(self.shape, axes, strict=True)
        )

    def shard_bytes(self, mesh: MeshSpec) -> int:
        """On each device."""
        return prod(self.shard_shape(mesh)) * self.element_bytes

    def split_text(self) -> str:
        """`- x fsdp x tensor` for an array whose last two dimensions are split."""
        if not any(self.split):
            return "whole on every device"
        axes = [*self.split, *[()] * (len(self.shape) - len(self.split))]
        return " x ".join("·".join(over) or "-" for over in axes)


class Placement(Spec):
    """One start's mesh, and which array lives where."""

    mesh: MeshSpec
    slices: SliceSpec
    hosts: tuple[int, ...]
    """For each place of the mesh, the last axis running fastest: the host, counted through all slices."""
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
            raise ValueError(f"expected arrays split over {', '.join(self.mesh.sizes)} alone")
        return self

    @property
    def state_bytes(self) -> int:
        """Of all arrays, on each device."""
        return sum(array.shard_bytes(self.mesh) for array in self.arrays)

    def places(self, host: int) -> list[dict[str, int]]:
        """Coordinates of the host's devices, by axis."""
        return [self._coordinates(place) for place, owner in enumerate(self.hosts) if owner == host]

    def slice_places(self, number: int) -> list[list[dict[str, int]]]:
        """Coordinates of a slice's devices, host by host."""
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
    """The hosts of a mesh that is laid over the devices in their order: slice by slice, host by host."""
    return tuple(place // slices.devices_per_host for place in range(slices.devices))
