"""What a TPU slice is made of: generation and topology become machines, hosts, chips and devices.

Owns the way from a stack file's words to one `SliceShape`, and the answer to words that name none.
The numbers are those of `infra.generations`. Knows no settings, no prices, no Pulumi.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from math import prod

from infra.generations import Generation, Machine, generations

_SHOWN_ALTERNATIVES = 5
_TYPE = re.compile(r"(?P<name>.+?)(-(?P<number>\d+))?")
"""An accelerator type of Cloud TPU, or the name of a generation alone."""


@dataclass(frozen=True)
class SliceShape:
    """One slice: its machines, their number, and what the trainer must know of its chips."""

    generation: str
    accelerator: str
    """Value of the node label `cloud.google.com/gke-tpu-accelerator`."""
    accelerator_type: str
    """Cloud TPU's name for it, such as `v5p-128`."""
    machine_type: str
    topology: str
    """Value of the node label `cloud.google.com/gke-tpu-topology`."""
    chips_per_host: int
    vcpus_per_host: int
    memory_gib_per_host: int
    devices_per_chip: int
    peak_bf16_tflops_per_chip: float
    hbm_gib_per_chip: float
    boot_disk_types: tuple[str, ...]
    workload_policy_required: bool
    accelerator_nics: int
    """Network interfaces of a host beside the first, for traffic between slices."""

    @property
    def chips(self) -> int:
        """Chips of the whole slice."""
        return prod(dimensions(self.topology))

    @property
    def hosts(self) -> int:
        """Machines of the slice: the nodes of its pool."""
        return self.chips // self.chips_per_host

    @property
    def multi_host(self) -> bool:
        """Only multi-host slices have a placement policy, and only they join others over DCN."""
        return self.hosts > 1

    @property
    def devices(self) -> int:
        """JAX devices of the slice."""
        return self.chips * self.devices_per_chip


def dimensions(topology: str) -> tuple[int, ...]:
    """The dimensions of a topology such as `4x4x8`.

    Raises:
        ValueError: the text is no topology.
    """
    parts = topology.split("x")
    if len(parts) not in (2, 3) or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"{topology!r} is not a topology; write its dimensions, such as 2x4 or 4x4x8")
    return tuple(map(int, parts))


def generation_names() -> list[str]:
    """Names of the generations, oldest first."""
    return [generation.name for generation in generations()]


@cache
def all_shapes() -> tuple[SliceShape, ...]:
    """Every slice that GKE offers, by generation, machine type and size."""
    return tuple(
        _shape(generation, machine, topology)
        for generation in generations()
        for machine in generation.machines
        for topology in machine.topologies
    )


def resolve(generation: str, topology: str, machine_type: str | None = None) -> SliceShape:
    """The slice of that generation and topology, on that machine type.

    Without a machine type it is the multi-host slice if the topology has one, else the only one
    there is: multi-host slices alone can be joined to others.

    Raises:
        ValueError: GKE does not offer it; the message lists what it offers instead, nearest first.
    """
    if generation not in generation_names():
        raise ValueError(f"{generation!r} is not a TPU generation; choose one of {', '.join(generation_names())}")
    shapes = [shape for shape in all_shapes() if shape.generation == generation]
    machine_types = list(dict.fromkeys(shape.machine_type for shape in shapes))
    if machine_type not in (None, *machine_types):
        raise ValueError(
            f"{machine_type!r} is not a {generation} machine type; choose one of {', '.join(machine_types)}"
        )
    offered = [shape for shape in shapes if machine_type in (None, shape.machine_type)]
    found = [shape for shape in offered if shape.topology == topology]
    if not found:
        nearest = _nearest(topology, offered)
        raise ValueError(f"{topology!r} is not a topology of {machine_type or generation}; the nearest are {nearest}")
    return max(found, key=lambda shape: shape.hosts)


def meant(generation: str, topology: str) -> tuple[str, str]:
    """Return a stack file's words for what others call `trillium`, `v5litepod-16`, `2X4` or 16 (chips of a slice).

    Words that are not understood are returned as they are.
    """
    found, chips = _typed(generation)
    other, other_chips = _typed(topology)
    known, chips = found or other, chips or other_chips
    if known is None:
        return generation, topology
    written = re.sub(r"\s*[xX×*]\s*", "x", topology.strip())
    offered = [each for machine in known.machines for each in machine.topologies]
    if written.isdecimal():
        chips = int(written)
    if written not in offered and chips:
        equal = [each for each in offered if prod(dimensions(each)) == chips]
        written = min(equal, key=lambda each: sum(dimensions(each)), default=written)
    return known.name, written


def _typed(word: str) -> tuple[Generation | None, int | None]:
    """The generation that a word names, and the chips of a slice if it is an accelerator type."""
    lower = word.strip().lower()
    for candidate in (lower, lower.removeprefix("tpu-")):
        parts = _TYPE.fullmatch(candidate)
        for generation in generations() if parts else ():
            names = (generation.name, generation.type_prefix, generation.accelerator, *generation.other_names)
            if parts and parts["name"] in names:
                number = parts["number"]
                return generation, int(number) // generation.type_counts_per_chip if number else None
    return None, None


def shape_of(machine_type: str, topology: str) -> SliceShape:
    """The slice of that machine type and topology: what a node pool says of itself.

    Raises:
        ValueError: GKE does not offer it; the message lists what it offers instead.
    """
    machines = {machine.name: generation.name for generation in generations() for machine in generation.machines}
    if machine_type not in machines:
        raise ValueError(f"{machine_type!r} is not a TPU machine type; choose one of {', '.join(machines)}")
    return resolve(machines[machine_type], topology, machine_type)


def _nearest(topology: str, offered: Iterable[SliceShape]) -> str:
    wanted = dimensions(topology)

    def distance(shape: SliceShape) -> tuple[int, int]:
        shape_dimensions = dimensions(shape.topology)
        by_chips = abs(shape.chips - prod(wanted))
        pairs = zip(sorted(shape_dimensions, reverse=True), sorted(wanted, reverse=True), strict=False)
        return by_chips, sum(abs(ours - theirs) for ours, theirs in pairs)

    ordered = sorted(offered, key=distance)
    return ", ".join(list(dict.fromkeys(shape.topology for shape in ordered))[:_SHOWN_ALTERNATIVES])


def _shape(generation: Generation, machine: Machine, topology: str) -> SliceShape:
    chips = prod(dimensions(topology))
    multi_host = chips > machine.chips
    return SliceShape(
        generation=generation.name,
        accelerator=generation.accelerator,
        accelerator_type=f"{generation.type_prefix}-{chips * generation.type_counts_per_chip}",
        machine_type=machine.name,
        topology=topology,
        chips_per_host=machine.chips,
        vcpus_per_host=machine.vcpus,
        memory_gib_per_host=machine.memory_gib,
        devices_per_chip=generation.devices_per_chip,
        peak_bf16_tflops_per_chip=generation.peak_bf16_tflops_per_chip,
        hbm_gib_per_chip=generation.hbm_gib_per_chip,
        boot_disk_types=generation.boot_disk_types,
        workload_policy_required=multi_host and generation.uses_workload_policy,
        accelerator_nics=machine.accelerator_nics,
    )
