"""Draws the mesh for the report: slices as boxes, hosts inside them, devices in the colour of their data shard.

For a large job, only the first and the last parts are shown.
"""

from collections.abc import Iterator

from workloads.report.chart import element, picture, text, title
from workloads.report.mesh_text import Placement, counted, fixed_and_varying, select

WIDTH = 960

SLICES_SHOWN = 5

HOSTS_SHOWN = 7

DEVICE, GAP, PAD, HEAD = 36, 4, 8, 20

COLOURS = 8
"""Number of series colours of the page. They repeat."""


def mesh_drawing(placement: Placement) -> str:
    """Draw the slices in rows, as many per row as fit."""
    numbers = select(placement.slices.count, SLICES_SHOWN)
    boxes = [None if number is None else _slice(placement, number) for number in numbers]
    wide = max(box[0] for box in boxes if box)
    tall = max(box[1] for box in boxes if box)
    columns = max(1, WIDTH // (wide + 2 * PAD))
    drawn: list[str] = []
    for place, box in enumerate(boxes):
        x, y = (place % columns) * (wide + 2 * PAD), (place // columns) * (tall + 2 * PAD)
        content = box[2] if box else _more(placement.slices.count - SLICES_SHOWN, "slices", wide, tall, "label")
        drawn.append(element("g", content, transform=f"translate({x} {y})"))
    rows = -(-len(boxes) // columns)
    width = min(columns, len(boxes)) * (wide + 2 * PAD)
    described = f"{placement.mesh} over {counted(placement.slices.count, 'slice')}; the table below shows the split"
    return picture("Mesh", f"{described} of each array", max(WIDTH, width), rows * (tall + 2 * PAD), *drawn)


def _more(count: int, noun: str, wide: int, tall: int, style: str) -> str:
    return text(f"{count} {noun} more", wide / 2, tall / 2, class_=style, text_anchor="middle")


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
        content = _more(len(hosts) - HOSTS_SHOWN, "hosts", wide, tall, "tick")
        if host is not None:
            content = "".join(_host(placement, number, host, hosts[host], varying, (across, wide, tall)))
        drawn.append(element("g", content, transform=f"translate({x} {y})"))
    rows = -(-len(places) // columns)
    width, height = columns * (wide + PAD) + PAD, rows * (tall + PAD) + HEAD + PAD
    named = ", ".join(f"{axis} {at}" for axis, at in fixed.items() if placement.mesh.sizes[axis] > 1)
    frame = element("rect", x=0, y=0, width=width, height=height, rx=6, class_="box")
    head = text(f"slice {number}" + (f": {named}" if named else ""), PAD, HEAD, class_="label strong")
    return width, height, "".join([frame, head, *drawn])


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
