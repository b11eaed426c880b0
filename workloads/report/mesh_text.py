"""The mesh as text: which slice, host and device holds which coordinate, and which array lives where.

Owns the drawing for a log, at most 100 columns wide; long jobs are shown by their first and last parts.
"""

from collections.abc import Iterator, Sequence

from workloads.report.placement import PlacedArray, Placement

WIDTH = 100

SLICES_SHOWN = 4
"""Of more slices, the first ones and the last."""

ARRAYS_SHOWN = 24
"""Of more arrays, the largest on a device."""

_LABEL = 8

_MIB = 2**20


def mesh_picture(placement: Placement) -> str:
    """The whole picture."""
    return "\n".join([*_head(placement), *_slices(placement), "", *_arrays(placement)])


def _head(placement: Placement) -> Iterator[str]:
    slices = placement.slices
    yield (
        f"mesh {placement.mesh} over {counted(slices.count, 'slice')} of {counted(slices.hosts, 'host')}"
        f" with {counted(slices.devices_per_host, 'device')} each ({slices.generation} {slices.topology})"
    )


def counted(count: int, noun: str) -> str:
    """`1 slice`, `2 slices`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _slices(placement: Placement) -> Iterator[str]:
    count = placement.slices.count
    for number in shown(count, SLICES_SHOWN):
        if number is None:
            yield f"... {counted(count - SLICES_SHOWN, 'slice')} more"
        else:
            yield from _slice(placement, number)


def shown(count: int, limit: int) -> list[int | None]:
    """The first of `count` and the last, `limit` of them, with None where some are left out."""
    if count <= limit:
        return [*range(count)]
    return [*range(limit - 1), None, count - 1]


def fixed_and_varying(places: Sequence[dict[str, int]]) -> tuple[dict[str, int], list[str]]:
    """The axes that are the same in all of `places`, with their coordinate, and the others."""
    values = {axis: {place[axis] for place in places} for axis in places[0]}
    fixed = {axis: min(found) for axis, found in values.items() if len(found) == 1}
    return fixed, [axis for axis in values if axis not in fixed]


def _slice(placement: Placement, number: int) -> Iterator[str]:
    hosts = placement.slice_places(number)
    fixed, varying = fixed_and_varying([place for host in hosts for place in host])
    coordinates = [f"{axis} {place}" for axis, place in fixed.items() if axis in _named(placement)]
    yield f"slice {number}: {', '.join(coordinates)}"
    cell = max(len(str(size - 1)) for size in [*placement.mesh.sizes.values(), placement.slices.devices_per_host]) + 1
    block = cell * placement.slices.devices_per_host
    columns = shown(len(hosts), max(2, (WIDTH - _LABEL - 6) // (max(block, len(f" host {len(hosts)}")) + 2)))

    def row(label: str, texts: Sequence[str]) -> str:
        blocks = iter(texts)
        return f"  {label:<{_LABEL - 2}}" + " |".join("  ..." if host is None else next(blocks) for host in columns)

    drawn = [host for host in columns if host is not None]
    wide = max(block, len(f" host {len(hosts)}"))
    yield row("", [f"{f'host {host}':>{wide}}" for host in drawn])
    devices = "".join(f"{device:>{cell}}" for device in range(placement.slices.devices_per_host))
    yield row("device", [f"{devices:>{wide}}" for _ in drawn])
    for axis in varying:
        yield row(axis, [f"{''.join(f'{place[axis]:>{cell}}' for place in hosts[host]):>{wide}}" for host in drawn])


def _named(placement: Placement) -> list[str]:
    """Axes worth a word: those of more than one place, and the outermost."""
    return [axis for axis, size in placement.mesh.sizes.items() if size > 1 or axis == "replica"]


def _arrays(placement: Placement) -> Iterator[str]:
    if not placement.arrays:
        return
    largest = sorted(placement.arrays, key=lambda array: -array.shard_bytes(placement.mesh))
    kept = {array.name for array in largest[:ARRAYS_SHOWN]}
    rows = [_array_row(array, placement) for array in placement.arrays if array.name in kept]
    titles = ("array", "shape", "split over", "MiB a device")
    widths = [max(len(row[column]) for row in [titles, *rows]) for column in range(4)]
    for name, shape, split, size in [titles, *rows]:
        yield f"{name:<{widths[0]}}  {shape:<{widths[1]}}  {split:<{widths[2]}}  {size:>{widths[3]}}"[:WIDTH]
    if len(largest) > ARRAYS_SHOWN:
        rest = sum(array.shard_bytes(placement.mesh) for array in largest[ARRAYS_SHOWN:])
        yield f"... {counted(len(largest) - ARRAYS_SHOWN, 'smaller array')}: {rest / _MIB:,.2f} MiB a device"
    yield f"{counted(len(largest), 'array')}: {placement.state_bytes / _MIB:,.2f} MiB a device"


def _array_row(array: PlacedArray, placement: Placement) -> tuple[str, str, str, str]:
    name = array.name if len(array.name) <= 40 else f"...{array.name[-37:]}"
    shape = f"{array.dtype}[{','.join(map(str, array.shape))}]"
    return name, shape, array.split_text(), f"{array.shard_bytes(placement.mesh) / _MIB:,.2f}"
