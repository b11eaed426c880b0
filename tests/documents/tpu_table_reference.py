"""Renders the reference of TPU slices and list prices from the program's tables."""

from infra.stack.cost import price_table
from infra.stack.tpu import FLEX_START_GENERATIONS, Generation, SliceShape, all_shapes, generations
from tests.documents.pages import MADE

_HEAD = f"""# TPU slices and prices

{MADE.format("tests/documents/tpu_table_reference.py")}

Every slice that a stack file can name, by `generation` and `topology`. If a topology has two machine types, the
default is the multi-host slice, because only multi-host slices can be joined to others. Set `machine_type` to choose
the other one. The numbers are Google's; `infra/stack/tpu.py` names the sources. Peaks are bf16.
"""
_GENERATIONS = (
    "\n## Generations\n\n"
    "| Generation | Node label | Peak TFLOP/s per chip | HBM GiB per chip | JAX devices per chip | Flex-start, queued |"
    " Lowest list price, USD per chip-hour |\n|---|---|---|---|---|---|---|\n"
)
_MACHINES = (
    "\n## Machine types\n\n"
    "| Machine type | Generation | Chips | vCPUs | Memory GiB | Network interfaces for DCN |"
    "\n|---|---|---|---|---|---|\n"
)
_SLICES = (
    "| Topology | Cloud TPU name | Machine type | Chips | Hosts | JAX devices | HBM GiB | Peak PFLOP/s |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


def reference() -> str:
    """Return the page."""
    parts = [_HEAD, _GENERATIONS, *map(_generation, generations()), _MACHINES]
    parts += [
        f"| `{machine.name}` | {generation.name} | {machine.chips} | {machine.vcpus} | {machine.memory_gib}"
        f" | {machine.accelerator_nics or ''} |\n"
        for generation in generations()
        for machine in generation.machines
    ]
    for generation in generations():
        shapes = [shape for shape in all_shapes() if shape.generation == generation.name]
        parts.append(f"\n## {generation.name} slices\n\n{_SLICES}{''.join(map(_slice, shapes))}")
    return "".join([*parts, _prices()])


def _generation(generation: Generation) -> str:
    rows = [row for row in price_table().prices if row.generation == generation.name]
    listed = [(row.usd_per_chip_hour["on-demand"], row.place) for row in rows if "on-demand" in row.usd_per_chip_hour]
    usd, place = min(listed, key=lambda priced: priced[0], default=(None, ""))
    price = "unknown" if usd is None else f"{usd:g} in {place}"
    flex_start = "yes" if generation.name in FLEX_START_GENERATIONS else "no"
    return (
        f"| {generation.name} | `{generation.accelerator}` | {generation.peak_bf16_tflops_per_chip:g}"
        f" | {generation.hbm_gib_per_chip:g} | {generation.devices_per_chip} | {flex_start} | {price} |\n"
    )


def _slice(shape: SliceShape) -> str:
    memory = shape.chips * shape.hbm_gib_per_chip
    peak = shape.chips * shape.peak_bf16_tflops_per_chip / 1000
    return (
        f"| `{shape.topology}` | {shape.accelerator_type} | `{shape.machine_type}` | {shape.chips:,} | {shape.hosts:,}"
        f" | {shape.devices:,} | {memory:,.0f} | {peak:,.1f} |\n"
    )


def _prices() -> str:
    table = price_table()
    rows = "".join(
        f"| {row.generation} | {row.place} | {row.usd_per_chip_hour.get('on-demand', '')}"
        f" | {row.usd_per_chip_hour.get('spot', '')} |\n"
        for row in table.prices
    )
    return (
        f"\n## List prices\n\nUSD per chip-hour, from {table.source.name}, {table.source.date}. A row with a zone"
        " applies only in that zone. Other list prices are unknown, such as those of 7x, flex-start and reservations."
        " Set your contract prices in the section `prices` of the stack file.\n\n"
        f"| Generation | Region or zone | On-demand | Spot |\n|---|---|---|---|\n{rows}"
    )
