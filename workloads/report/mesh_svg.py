"""Draws the mesh for the report: slices as boxes, hosts inside them, devices in the colour of their data shard.

The trainer writes the places of a job's devices and arrays to `placement/<start>.json` of a run, from the real mesh and
the training state. For a large job, only the first and the last parts are drawn.
"""

from collections.abc import Iterator
from math import prod
from typing import Self

from pydantic import model_validator

from workloads.report.chart import element, picture, text, title
from workloads.report.mesh_text import counted, fixed_and_varying, select
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


WIDTH = 960

SLICES_SHOWN = 5

HOSTS_SHOWN = 7

DEVICE, GAP, PAD, HEAD = 36, 4, 8, 20

COLOURS = 8
"""Number of series colours of the page. They repeat."""


def mesh_drawing(placement: Placement) -> str:
    """Draw the slices in rows, as many per row as fit."""
    boxes = [
        _slice(placement, number) if number is not None else None
        for number in select(placement.slices.count, SLICES_SHOWN)
    ]
    wide = max(box[0] for box in boxes if box)
    tall = max(box[1] for box in boxes if box)
    columns = max(1, WIDTH // (wide + 2 * PAD))
    drawn: list[str] = []
    for place, box in enumerate(boxes):
        x, y = (place % columns) * (wide + 2 * PAD), (place // columns) * (tall + 2 * PAD)
        content = box[2] if box else _left_out(placement, wide, tall)
        drawn.append(element("g", content, transform=f"translate({x} {y})"))
    rows = -(-len(boxes) // columns)
    width = min(columns, len(boxes)) * (wide + 2 * PAD)
    described = f"{placement.mesh} over {counted(placement.slices.count, 'slice')}; the table below shows the split"
    return picture("Mesh", f"{described} of each array", max(WIDTH, width), rows * (tall + 2 * PAD), *drawn)


def _left_out(placement: Placement, wide: int, tall: int) -> str:
    words = f"{placement.slices.count - SLICES_SHOWN} slices more"
    return text(words, wide / 2, tall / 2, class_="label", text_anchor="middle")


def _slice(placement: Placement, number: int) -> tuple[int, int, str]:
    """Return width, height and content."""
    hosts = placement.slice_places(number)
    places = select(len(hosts), HOSTS_SHOWN)
    fixed, varying = fixed_and_varying([place for host in hosts for place in host])
    across = min(placement.slices.devices_per_host, 4)
    down = -(-placement.slices.devices_per_host // across)
    wide, tall = across * (DEVICE + GAP) + 2 * PAD - GAP, down * (DEVICE + GAP) + HEAD + PAD - GAP
    columns = min(len(places), max(1, min(4, (WIDTH - 4 * PAD) // (wide + PAD))))
    drawn: list[str] = []
    for place, host in enumerate(places):
        x, y = PAD + (place % columns) * (wide + PAD), HEAD + PAD + (place // columns) * (tall + PAD)
        content = _more_hosts(len(hosts), wide, tall)
        if host is not None:
            content = "".join(_host(placement, number, host, hosts[host], varying, (across, wide, tall)))
        drawn.append(element("g", content, transform=f"translate({x} {y})"))
    rows = -(-len(places) // columns)
    width, height = columns * (wide + PAD) + PAD, rows * (tall + PAD) + HEAD + PAD
    named = ", ".join(f"{axis} {at}" for axis, at in fixed.items() if placement.mesh.sizes[axis] > 1)
    frame = element("rect", x=0, y=0, width=width, height=height, rx=6, class_="box")
    head = text(f"slice {number}" + (f": {named}" if named else ""), PAD, HEAD, class_="label strong")
    return width, height, "".join([frame, head, *drawn])


def _more_hosts(count: int, wide: int, tall: int) -> str:
    return text(f"{count - HOSTS_SHOWN} hosts more", wide / 2, tall / 2, class_="tick", text_anchor="middle")


def _host(
    placement: Placement,
    number: int,
    host: int,
    places: list[dict[str, int]],
    varying: list[str],
    sizes: tuple[int, int, int],
) -> Iterator[str]:
    across, wide, tall = sizes
    yield element("rect", x=0, y=0, width=wide, height=tall, rx=4, class_="box inner")
    yield text(f"host {host}", PAD, 15, class_="tick")
    for device, place in enumerate(places):
        x, y = PAD + (device % across) * (DEVICE + GAP), HEAD + (device // across) * (DEVICE + GAP)
        colour = (place["replica"] * placement.mesh.stage + place["stage"]) % COLOURS + 1
        words = ", ".join(f"{axis} {at}" for axis, at in place.items())
        inner = [str(place[axis]) for axis in varying] or ["0"]
        yield element(
            "g",
            title(f"slice {number}, host {host}, device {device}: {words}"),
            element("rect", x=x, y=y, width=DEVICE, height=DEVICE, rx=3, class_=f"device fill-{colour}"),
            text("·".join(inner), x + DEVICE / 2, y + DEVICE / 2 + 4, class_="on-fill", text_anchor="middle"),
        )
