"""The reference of TPU slices, made from the program's table and its list prices."""

from infra.cost import cheapest_rate, price_table
from infra.tpu import FLEX_START_GENERATIONS, Generation, SliceShape, all_shapes, generations
from tests.documents.pages import MADE

_HEAD = f"""# The TPU table

{MADE.format("tests/documents/tpu_table_reference.py")}

Every slice that a stack file can name, by `generation` and `topology`. Where a topology has two machine types, the
multi-host slice is taken, for only those can be joined to others; `machine_type` asks for the other. The numbers are
those of `infra/tpu.py`, whose head names their sources: what Google documents, not what a chip of ours
has shown. Peaks are bf16, memory is of one chip.
"""
_GENERATIONS = (
    "\n## Generations\n\n"
    "| generation | label of its nodes | peak TFLOP/s | HBM GiB | JAX devices of a chip | flex-start, queued |"
    " cheapest list price, USD per chip-hour |\n|---|---|---|---|---|---|---|\n"
)
_MACHINES = (
    "\n## Machine types\n\n"
    "| machine type | generation | chips | vCPUs | memory GiB | network interfaces for traffic between slices |"
    "\n|---|---|---|---|---|---|\n"
)
_SLICES = (
    "| topology | Cloud TPU's name | machine type | chips | hosts | JAX devices | HBM GiB | peak PFLOP/s |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


def reference() -> str:
    """The whole text."""
    parts = [_HEAD, _GENERATIONS, *map(_generation, generations()), _MACHINES]
    parts += [
        f"| `{machine.name}` | {generation.name} | {machine.chips} | {machine.vcpus} | {machine.memory_gib}"
        f" | {machine.accelerator_nics or ''} |\n"
        for generation in generations()
        for machine in generation.machines
    ]
    for generation in generations():
        shapes = [shape for shape in all_shapes() if shape.generation == generation.name]
        parts.append(f"\n## Slices of {generation.name}\n\n{_SLICES}{''.join(map(_slice, shapes))}")
    return "".join([*parts, _prices()])


def _generation(generation: Generation) -> str:
    rate = cheapest_rate(generation.name, "on-demand")
    price = "none is known" if rate.usd_per_chip_hour is None else f"{rate.usd_per_chip_hour:g} in {rate.place}"
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
        f"\n## List prices\n\nUSD per chip-hour, from {table.source.name}, {table.source.date}. A row with a zone holds"
        " in that zone alone. What is not here is not known: no list price of 7x, of flex-start, of reservations."
        " Prices by contract belong into the section `prices` of the stack file.\n\n"
        f"| generation | region or zone | on demand | spot |\n|---|---|---|---|\n{rows}"
    )
