"""Draws the mesh as text for a log: the coordinates of each slice, host and device, and the split of each array.

The trainer writes the places of a job's devices and arrays to `placement/<start>.json` of a run, from the real mesh and
the training state; `pictures` draws them too. Lines are at most 100 columns wide. For a large job, only the first and
the last parts are shown.
"""

import re
from collections.abc import Iterator, Sequence
from math import prod
from typing import Self

from etils import epath
from pydantic import model_validator

from multislice_run.records.reader import read_record
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
        return sum(array.shard_bytes(self.mesh) for array in self.arrays)

    @property
    def summary(self) -> str:
        slices = self.slices
        return (
            f"{self.mesh} over {counted(slices.count, 'slice')} of {counted(slices.hosts, 'host')} with"
            f" {counted(slices.devices_per_host, 'device')} each ({slices.generation} {slices.topology})"
        )

    def slice_places(self, number: int) -> list[list[dict[str, int]]]:
        """Return the coordinates by axis of a slice's devices for each host."""
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


_START_FILE = re.compile(r"[0-9]+\.json")


def read_newest(folder: epath.Path, notes: list[str]) -> Placement | None:
    """Return the placement of the newest attempt that wrote one to `folder`. If it cannot be read, add a note."""
    paths = [path for path in folder.iterdir() if _START_FILE.fullmatch(path.name)] if folder.exists() else []
    newest = max(paths, key=lambda path: int(path.stem), default=None)
    return read_record(newest, Placement.model_validate, notes) if newest else None


WIDTH = 100

SLICES_SHOWN = 4
"""Number of slices to show. If there are more, the first ones and the last one are shown."""

GROUPS_SHOWN = 16
"""Number of lines of arrays to show. Arrays of equal shape and split share a line; the largest lines are shown."""

NAME_WIDTH = 34

_LABEL = 8


def mesh_picture(placement: Placement) -> str:
    """Draw the mesh and its arrays."""
    lines = [f"mesh {placement.summary}"]
    for number in select(placement.slices.count, SLICES_SHOWN):
        left_out = counted(placement.slices.count - SLICES_SHOWN, "slice")
        lines += [f"... {left_out} more"] if number is None else _slice(placement, number)
    return "\n".join([*lines, "", *_arrays(placement)])


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, as `1 slice` or `2 slices`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def select(count: int, limit: int) -> list[int | None]:
    """Return the first indices below `count` and the last one, `limit` in all, with `None` for those left out."""
    if count <= limit:
        return [*range(count)]
    return [*range(limit - 1), None, count - 1]


def fixed_and_varying(places: Sequence[dict[str, int]]) -> tuple[dict[str, int], list[str]]:
    """Return the axes that are equal in all `places`, with their coordinate, and the other axes."""
    values = {axis: {place[axis] for place in places} for axis in places[0]}
    fixed = {axis: min(found) for axis, found in values.items() if len(found) == 1}
    return fixed, [axis for axis in values if axis not in fixed]


def _slice(placement: Placement, number: int) -> Iterator[str]:
    hosts = placement.slice_places(number)
    fixed, varying = fixed_and_varying([place for host in hosts for place in host])
    sizes = placement.mesh.sizes
    # The outermost axis is shown even if it has only one position.
    coordinates = [f"{axis} {place}" for axis, place in fixed.items() if sizes[axis] > 1 or axis == "replica"]
    yield f"slice {number}: {', '.join(coordinates)}"
    cell = max(len(str(size - 1)) for size in [*sizes.values(), placement.slices.devices_per_host]) + 1
    wide = max(cell * placement.slices.devices_per_host, len(f" host {len(hosts)}"))
    columns = select(len(hosts), max(2, (WIDTH - _LABEL - 6) // (wide + 2)))

    def row(label: str, texts: Sequence[str]) -> str:
        blocks = iter(texts)
        return f"  {label:<{_LABEL - 2}}" + " |".join("  ..." if host is None else next(blocks) for host in columns)

    drawn = [host for host in columns if host is not None]
    yield row("", [f"{f'host {host}':>{wide}}" for host in drawn])
    devices = "".join(f"{device:>{cell}}" for device in range(placement.slices.devices_per_host))
    yield row("device", [f"{devices:>{wide}}" for _ in drawn])
    for axis in varying:
        yield row(axis, [f"{''.join(f'{place[axis]:>{cell}}' for place in hosts[host]):>{wide}}" for host in drawn])


def _arrays(placement: Placement) -> Iterator[str]:
    if not placement.arrays:
        return
    alike: dict[tuple[object, ...], list[PlacedArray]] = {}
    for array in placement.arrays:
        alike.setdefault((array.shape, array.dtype, array.split), []).append(array)
    largest = sorted(alike.values(), key=lambda arrays: -_group_bytes(arrays, placement))
    titles = ("array", "shape", "split over", "a device")
    rows = [titles, *(_group_row(arrays, placement) for arrays in largest[:GROUPS_SHOWN])]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for name, shape, split, size in rows:
        yield f"{name:<{widths[0]}}  {shape:<{widths[1]}}  {split:<{widths[2]}}  {size:>{widths[3]}}"[:WIDTH]
    if rest := [array for arrays in largest[GROUPS_SHOWN:] for array in arrays]:
        yield f"... {counted(len(rest), 'smaller array')}, {size_text(_group_bytes(rest, placement))} a device"
    yield f"{counted(len(placement.arrays), 'array')}, {size_text(placement.state_bytes)} a device"


def _group_bytes(arrays: Sequence[PlacedArray], placement: Placement) -> int:
    return sum(array.shard_bytes(placement.mesh) for array in arrays)


def _group_row(arrays: Sequence[PlacedArray], placement: Placement) -> tuple[str, str, str, str]:
    first = arrays[0]
    name = first.name if len(first.name) <= NAME_WIDTH else f"...{first.name[3 - NAME_WIDTH :]}"
    more = f" and {len(arrays) - 1} alike" if len(arrays) > 1 else ""
    shape = f"{first.dtype}[{','.join(map(str, first.shape))}]"
    return f"{name}{more}", shape, first.split_text(), size_text(_group_bytes(arrays, placement))


def size_text(count: int) -> str:
    """Format bytes for people."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count} B"
