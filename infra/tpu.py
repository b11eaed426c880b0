"""The TPU table: every number of a generation, its machines and topologies, and what one slice is made of."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from math import prod

FLEX_START_GENERATIONS = ("v5p", "v6e", "7x")
"""Those that Compute Engine grants by flex-start, queued or not
(https://cloud.google.com/compute/docs/instances/provisioning-models)."""


@dataclass(frozen=True)
class Generation:
    """One TPU generation. Peaks and memory are per chip, as Google's system architecture pages state them."""

    name: str
    accelerator: str
    """Value of the node label `cloud.google.com/gke-tpu-accelerator`."""
    machines: tuple["Machine", ...]
    type_prefix: str
    """Begins Cloud TPU's accelerator types, such as `v5litepod-16`."""
    type_counts_per_chip: int
    """How often its number counts each chip: twice where it counts TensorCores, once where it counts chips."""
    other_names: tuple[str, ...]
    """Names for the generation that people use elsewhere, in lower case."""
    devices_per_chip: int
    """JAX devices per chip: 2 where each chiplet is a device of its own."""
    peak_bf16_tflops_per_chip: float
    hbm_gib_per_chip: float
    boot_disk_types: tuple[str, ...]
    """Boot disks that its machines take, the usual one first."""
    uses_workload_policy: bool
    """Multi-host slices are placed by a workload policy (a Compute Engine resource policy)."""


@dataclass(frozen=True)
class Machine:
    """A machine type, its chips, and the topologies of slices that are made of it."""

    name: str
    chips: int
    vcpus: int
    memory_gib: int
    topologies: tuple[str, ...]
    accelerator_nics: int = 0
    """Network interfaces beside the first, for traffic between slices."""


@cache
def generations() -> tuple[Generation, ...]:
    """All generations, oldest first."""
    v5e, v6e = _flat_generations()
    v4, v5p, ironwood = _cube_generations()
    return (v4, v5e, v5p, v6e, ironwood)


def _flat_generations() -> tuple[Generation, Generation]:
    """Those whose chips form a 2D torus."""
    return (
        Generation(
            name="v5e",
            accelerator="tpu-v5-lite-podslice",
            machines=(
                Machine("ct5lp-hightpu-1t", 1, 24, 48, _ONE_CHIP),
                Machine("ct5lp-hightpu-4t", 4, 112, 192, _FLAT_TOPOLOGIES),
                Machine("ct5lp-hightpu-8t", 8, 224, 384, _EIGHT_CHIPS),
            ),
            type_prefix="v5litepod",
            type_counts_per_chip=1,
            other_names=("v5-lite", "v5lite"),
            devices_per_chip=1,
            peak_bf16_tflops_per_chip=197,
            hbm_gib_per_chip=16,
            boot_disk_types=("pd-balanced", "pd-ssd"),
            uses_workload_policy=False,
        ),
        Generation(
            name="v6e",
            accelerator="tpu-v6e-slice",
            machines=(
                Machine("ct6e-standard-1t", 1, 44, 176, _ONE_CHIP, accelerator_nics=1),
                Machine("ct6e-standard-4t", 4, 180, 720, _FLAT_TOPOLOGIES, accelerator_nics=2),
                Machine("ct6e-standard-8t", 8, 180, 1440, _EIGHT_CHIPS, accelerator_nics=4),
            ),
            type_prefix="v6e",
            type_counts_per_chip=1,
            other_names=("trillium",),
            devices_per_chip=1,
            peak_bf16_tflops_per_chip=918,
            hbm_gib_per_chip=32,
            boot_disk_types=("hyperdisk-balanced",),
            uses_workload_policy=False,
        ),
    )


def _cube_generations() -> tuple[Generation, Generation, Generation]:
    """Those whose chips form a 3D torus of 4x4x4 cubes."""
    return (
        Generation(
            name="v4",
            accelerator="tpu-v4-podslice",
            machines=(Machine("ct4p-hightpu-4t", 4, 240, 407, _V4_TOPOLOGIES),),
            type_prefix="v4",
            type_counts_per_chip=2,
            other_names=(),
            devices_per_chip=1,
            peak_bf16_tflops_per_chip=275,
            hbm_gib_per_chip=32,
            boot_disk_types=("pd-balanced", "pd-ssd", "pd-standard", "hyperdisk-balanced"),
            uses_workload_policy=False,
        ),
        Generation(
            name="v5p",
            accelerator="tpu-v5p-slice",
            # Above 96 cubes a slice cannot be scheduled (https://cloud.google.com/tpu/docs/v5p).
            machines=(Machine("ct5p-hightpu-4t", 4, 208, 448, _cube_topologies()),),
            type_prefix="v5p",
            type_counts_per_chip=2,
            other_names=(),
            devices_per_chip=1,
            peak_bf16_tflops_per_chip=459,
            hbm_gib_per_chip=95,
            boot_disk_types=("pd-balanced", "pd-ssd"),
            uses_workload_policy=False,
        ),
        Generation(
            name="7x",
            accelerator="tpu7x",
            machines=(
                Machine("tpu7x-standard-1t", 1, 56, 240, ("1x1x1",)),
                Machine("tpu7x-standard-4t", 4, 224, 960, _cube_topologies(108, 128, 140, 144), accelerator_nics=2),
            ),
            type_prefix="tpu7x",
            type_counts_per_chip=2,
            other_names=("ironwood", "v7", "v7x"),
            devices_per_chip=2,
            peak_bf16_tflops_per_chip=2307,
            hbm_gib_per_chip=192,
            boot_disk_types=("hyperdisk-balanced",),
            uses_workload_policy=True,
        ),
    )


_ONE_CHIP, _EIGHT_CHIPS = ("1x1",), ("2x4",)
_FLAT_TOPOLOGIES = ("2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_BELOW_A_CUBE = ("2x2x1", "2x2x2", "2x2x4", "2x4x4")
_V4_TOPOLOGIES = (
    *_BELOW_A_CUBE,
    *("4x4x4", "4x4x8", "4x4x12", "4x4x16", "4x8x8", "8x8x8", "8x8x12", "4x16x16", "8x8x16", "8x16x16", "16x16x16"),
)


def _cube_topologies(*larger_cube_counts: int) -> tuple[str, ...]:
    """Topologies of v5p and 7x: parts of one 4x4x4 cube, then one arrangement for each number of cubes.

    The published lists follow a law: up to 96 cubes, the arrangement nearest to a cube, unless it
    were longer than 64 cubes; a few larger numbers are named one by one.
    """
    arrangements = [_nearest_to_a_cube(cubes) for cubes in (*range(1, 97), *larger_cube_counts)]
    whole = (
        "x".join(str(4 * cubes) for cubes in arrangement) for arrangement in arrangements if max(arrangement) <= 64
    )
    return (*_BELOW_A_CUBE, *whole)


def _nearest_to_a_cube(cubes: int) -> tuple[int, int, int]:
    return min(
        (
            (short, middle, cubes // (short * middle))
            for short in range(1, cubes + 1)
            for middle in range(short, cubes // short + 1)
            if cubes % (short * middle) == 0 and cubes // (short * middle) >= middle
        ),
        key=sum,
    )


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
