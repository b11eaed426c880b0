"""The TPU table: every number of a generation, its machines and its slices. No other module repeats these numbers.

`resolve` turns the words of a stack file into one `SliceShape`. Compiler flags and the rates of links, which only
preflight and trainer need, are in `workloads.spec`.

Sources: machine types from https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus, chips from
https://cloud.google.com/tpu/docs/system-architecture-tpu-vm, topologies from AI-Hypercomputer/xpk and
google/pathways-job, which agree, and network interfaces from GoogleCloudPlatform/cluster-autoscaler.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import prod

FLEX_START_GENERATIONS = ("v5p", "v6e", "7x")
"""Generations that Compute Engine offers by flex-start, queued or not
(https://cloud.google.com/compute/docs/instances/provisioning-models)."""
BLOCK_GENERATION = "7x"
"""The only generation whose reservations have blocks
(https://cloud.google.com/kubernetes-engine/docs/how-to/tpu-all-capacity-mode)."""
CHIPS_PER_SUB_BLOCK = 64
CHIPS_PER_BLOCK = 144 * CHIPS_PER_SUB_BLOCK

_SHOWN_ALTERNATIVES = 5
_TYPE = re.compile(r"(?P<name>.+?)(-(?P<number>\d+))?")
"""An accelerator type of Cloud TPU, or only the name of a generation."""


@dataclass(frozen=True)
class Machine:
    """A machine type, its chips, and the topologies of its slices."""

    name: str
    chips: int
    vcpus: int
    memory_gib: int
    topologies: tuple[str, ...]
    accelerator_nics: int = 0
    """Number of additional network interfaces, for traffic between slices."""
    pathways_name: str | None = None
    """Pathways' name of the machine type (AI-Hypercomputer/xpk). `None` for machines that Pathways does not know."""


@dataclass(frozen=True)
class Generation:
    """One TPU generation."""

    name: str
    accelerator: str
    """Value of the node label `cloud.google.com/gke-tpu-accelerator`."""
    machines: tuple[Machine, ...]
    type_prefix: str
    """Prefix of Cloud TPU's accelerator types, such as `v5litepod` in `v5litepod-16`."""
    type_counts_per_chip: int
    """What a chip adds to the number in an accelerator type: 2 if the number counts TensorCores, 1 if it counts
    chips."""
    peak_bf16_tflops_per_chip: float
    hbm_gib_per_chip: float
    boot_disk_types: tuple[str, ...]
    """Boot disks that its machines accept, the usual type first."""
    other_names: tuple[str, ...] = ()
    """Other names for it, in lower case."""
    devices_per_chip: int = 1
    """Number of JAX devices per chip: 2 if each chiplet is a device."""
    uses_workload_policy: bool = False
    """Whether a workload policy (a Compute Engine resource policy) places multi-host slices."""
    shares_host: bool = False
    """Whether several containers of a pod may share the chips of a host."""
    quotas: Mapping[str, tuple[str, str | None]] = field(default_factory=dict[str, tuple[str, str | None]])
    """Compute Engine quota of chips and its dimension `tpu_family`, by `on-demand` or `preemptible`. Users report these
    names; Google publishes no list."""


@dataclass(frozen=True)
class SliceShape:
    """One slice: its machines, and what the trainer must know about its chips."""

    generation: str
    accelerator: str
    """Value of the node label `cloud.google.com/gke-tpu-accelerator`."""
    accelerator_type: str
    """Cloud TPU's name of the slice, such as `v5p-128`."""
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
    """Number of additional network interfaces of a host, for traffic between slices."""

    @property
    def chips(self) -> int:
        return prod(dimensions(self.topology))

    @property
    def hosts(self) -> int:
        """Return the number of machines of the slice, which are the nodes of its pool."""
        return self.chips // self.chips_per_host

    @property
    def multi_host(self) -> bool:
        """Return whether it has several hosts. Only such slices have a placement policy and can be joined over DCN."""
        return self.hosts > 1

    @property
    def devices(self) -> int:
        return self.chips * self.devices_per_chip

    @property
    def flex_start(self) -> bool:
        """Return whether Compute Engine offers it by flex-start, queued or not."""
        return self.generation in FLEX_START_GENERATIONS

    @property
    def pathways_instance(self) -> str | None:
        """Return Pathways' name of the slice, such as `tpuv6e:4x4`; `None` if it has no name for the machine type."""
        (name,) = (machine.pathways_name for _, machine in _machines() if machine.name == self.machine_type)
        return name and f"{name}:{self.topology}"


_FLAT_TOPOLOGIES = ("2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_BELOW_A_CUBE = ("2x2x1", "2x2x2", "2x2x4", "2x4x4")
_V4_TOPOLOGIES = (
    *_BELOW_A_CUBE,
    *("4x4x4", "4x4x8", "4x4x12", "4x4x16", "4x8x8", "8x8x8", "8x8x12", "4x16x16", "8x8x16", "8x16x16", "16x16x16"),
)


@cache
def generations() -> tuple[Generation, ...]:
    """Return all generations, oldest first."""
    v5e, v6e = _flat_generations()
    v4, v5p, ironwood = _cube_generations()
    return (v4, v5e, v5p, v6e, ironwood)


def _flat_generations() -> tuple[Generation, Generation]:
    """Return the generations whose chips form a 2D torus."""
    return (
        Generation(
            name="v5e",
            accelerator="tpu-v5-lite-podslice",
            machines=(
                Machine("ct5lp-hightpu-1t", 1, 24, 48, ("1x1",)),
                Machine("ct5lp-hightpu-4t", 4, 112, 192, _FLAT_TOPOLOGIES, pathways_name="tpuv5e"),
                Machine("ct5lp-hightpu-8t", 8, 224, 384, ("2x4",), pathways_name="tpuv5e1t"),
            ),
            type_prefix="v5litepod",
            type_counts_per_chip=1,
            peak_bf16_tflops_per_chip=197,
            hbm_gib_per_chip=16,
            boot_disk_types=("pd-balanced", "pd-ssd"),
            other_names=("v5-lite", "v5lite"),
            quotas={
                "on-demand": ("TPU-LITE-PODSLICE-V5-per-project-region", None),
                "preemptible": ("PREEMPTIBLE-TPU-LITE-PODSLICE-V5-per-project-region", None),
            },
        ),
        Generation(
            name="v6e",
            accelerator="tpu-v6e-slice",
            machines=(
                Machine("ct6e-standard-1t", 1, 44, 176, ("1x1",), 1),
                Machine("ct6e-standard-4t", 4, 180, 720, _FLAT_TOPOLOGIES, 2, pathways_name="tpuv6e"),
                Machine("ct6e-standard-8t", 8, 180, 1440, ("2x4",), 4, pathways_name="tpuv6e1t"),
            ),
            type_prefix="v6e",
            type_counts_per_chip=1,
            peak_bf16_tflops_per_chip=918,
            hbm_gib_per_chip=32,
            boot_disk_types=("hyperdisk-balanced",),
            other_names=("trillium",),
            quotas={
                "on-demand": ("TPUS-PER-TPU-FAMILY-per-project-region", "CT6E"),
                "preemptible": ("PREEMPTIBLE-TPU-V6E-per-project-region", None),
            },
        ),
    )


def _cube_generations() -> tuple[Generation, Generation, Generation]:
    """Return the generations whose chips form a 3D torus of 4x4x4 cubes."""
    return (
        Generation(
            name="v4",
            accelerator="tpu-v4-podslice",
            machines=(Machine("ct4p-hightpu-4t", 4, 240, 407, _V4_TOPOLOGIES, pathways_name="tpuv4"),),
            type_prefix="v4",
            type_counts_per_chip=2,
            peak_bf16_tflops_per_chip=275,
            hbm_gib_per_chip=32,
            boot_disk_types=("pd-balanced", "pd-ssd", "pd-standard", "hyperdisk-balanced"),
        ),
        Generation(
            name="v5p",
            accelerator="tpu-v5p-slice",
            # A slice of more than 96 cubes cannot be scheduled (https://cloud.google.com/tpu/docs/v5p).
            machines=(Machine("ct5p-hightpu-4t", 4, 208, 448, _cube_topologies(), pathways_name="tpuv5"),),
            type_prefix="v5p",
            type_counts_per_chip=2,
            peak_bf16_tflops_per_chip=459,
            hbm_gib_per_chip=95,
            boot_disk_types=("pd-balanced", "pd-ssd"),
            quotas={"on-demand": ("TPU-V5P-per-project-region", None)},
        ),
        Generation(
            name="7x",
            accelerator="tpu7x",
            machines=(
                Machine("tpu7x-standard-1t", 1, 56, 240, ("1x1x1",)),
                Machine("tpu7x-standard-4t", 4, 224, 960, _cube_topologies(108, 128, 140, 144), 2, "tpu7x"),
            ),
            type_prefix="tpu7x",
            type_counts_per_chip=2,
            peak_bf16_tflops_per_chip=2307,
            hbm_gib_per_chip=192,
            boot_disk_types=("hyperdisk-balanced",),
            other_names=("ironwood", "v7", "v7x"),
            devices_per_chip=2,
            uses_workload_policy=True,
            shares_host=True,
            quotas={"preemptible": ("PREEMPTIBLE-TPU7X-per-project-region", None)},
        ),
    )


def _cube_topologies(*larger_cube_counts: int) -> tuple[str, ...]:
    """Return the topologies of v5p and 7x: parts of one 4x4x4 cube, then one arrangement for each number of cubes.

    The published lists follow a rule: up to 96 cubes, the arrangement nearest to a cube, unless one side has more than
    64 chips. A few larger numbers are listed individually.
    """
    sides = [_nearest_to_a_cube(cubes) for cubes in (*range(1, 97), *larger_cube_counts)]
    return (*_BELOW_A_CUBE, *("x".join(str(4 * side) for side in each) for each in sides if max(each) <= 64))


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


def _machines() -> Iterable[tuple[Generation, Machine]]:
    return ((generation, machine) for generation in generations() for machine in generation.machines)


def dimensions(topology: str) -> tuple[int, ...]:
    """Return the dimensions of a topology such as `4x4x8`. Raise ValueError if the text is not a topology."""
    parts = topology.split("x")
    if len(parts) not in (2, 3) or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"{topology!r} is not a topology; write its dimensions, such as 2x4 or 4x4x8")
    return tuple(map(int, parts))


def generation_names() -> list[str]:
    """Return the names of the generations, oldest first."""
    return [generation.name for generation in generations()]


@cache
def all_shapes() -> tuple[SliceShape, ...]:
    """Return every slice that GKE offers, by generation, machine type and size."""
    return tuple(
        _shape(generation, machine, topology) for generation, machine in _machines() for topology in machine.topologies
    )


@cache
def resolve(generation: str, topology: str, machine_type: str | None = None) -> SliceShape:
    """Return the slice of that generation and topology, on that machine type.

    Without a machine type it is the multi-host slice if the topology has one, because only multi-host slices can be
    joined with others.

    Raises:
        ValueError: GKE does not offer it. The message lists the nearest slices that GKE offers.
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


def interpret(generation: str, topology: str) -> tuple[str, str]:
    """Return generation and topology for other names such as `trillium`, `v5litepod-16`, `2X4` or 16 (chips of a
    slice).

    Unknown words are returned unchanged, and words that contradict each other.
    """
    found, chips = _parse_type(generation)
    other, other_chips = _parse_type(topology)
    known, chips = found or other, chips or other_chips
    if known is None or (found and other and found != other) or (other_chips and chips != other_chips):
        return generation, topology
    written = re.sub(r"\s*[xX×*]\s*", "x", topology.strip())
    offered = [each for machine in known.machines for each in machine.topologies]
    if written.isdecimal():
        chips = int(written)
    if written not in offered and chips:
        equal = [each for each in offered if prod(dimensions(each)) == chips]
        written = min(equal, key=lambda each: sum(dimensions(each)), default=written)
    return known.name, written


def _parse_type(word: str) -> tuple[Generation | None, int | None]:
    """Return the generation that a word stands for, and the chips of a slice if it is an accelerator type."""
    lower = word.strip().lower()
    for candidate in (lower, lower.removeprefix("tpu-")):
        parts = _TYPE.fullmatch(candidate)
        for generation in generations() if parts else ():
            names = (generation.name, generation.type_prefix, generation.accelerator, *generation.other_names)
            if parts and parts["name"] in names:
                number = parts["number"]
                return generation, int(number) // generation.type_counts_per_chip if number else None
    return None, None


def shapes_of_type(accelerator_type: str) -> tuple[SliceShape, ...]:
    """Return the slices with a name of Cloud TPU such as `v6e-16`, on all machine types and in all topologies.

    Other names of the generation are understood, as in `v5e-16`. Empty if GKE offers no such slice.
    """
    generation, chips = _parse_type(accelerator_type)
    return tuple(
        shape for shape in all_shapes() if generation and (shape.generation, shape.chips) == (generation.name, chips)
    )


def shape_of(machine_type: str, topology: str) -> SliceShape:
    """Return the slice of a node pool, by its machine type and topology.

    Raises:
        ValueError: GKE does not offer it. The message lists what it offers instead.
    """
    names = {machine.name: generation.name for generation, machine in _machines()}
    if machine_type not in names:
        raise ValueError(f"{machine_type!r} is not a TPU machine type; choose one of {', '.join(names)}")
    return resolve(names[machine_type], topology, machine_type)


def nearest_with_flex_start(shape: SliceShape) -> SliceShape:
    """Return the slice most similar to `shape` that flex-start can provide."""
    return min(
        (other for other in all_shapes() if other.flex_start and other.multi_host == shape.multi_host),
        key=lambda other: (other.topology != shape.topology, abs(other.chips - shape.chips), -other.chips_per_host),
    )


def _nearest(topology: str, offered: Iterable[SliceShape]) -> str:
    wanted = dimensions(topology)

    def distance(shape: SliceShape) -> tuple[int, int]:
        pairs = zip(sorted(dimensions(shape.topology), reverse=True), sorted(wanted, reverse=True), strict=False)
        return abs(shape.chips - prod(wanted)), sum(abs(ours - theirs) for ours, theirs in pairs)

    ordered = sorted(offered, key=distance)
    return ", ".join(list(dict.fromkeys(shape.topology for shape in ordered))[:_SHOWN_ALTERNATIVES])


def _shape(generation: Generation, machine: Machine, topology: str) -> SliceShape:
    chips = prod(dimensions(topology))
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
        workload_policy_required=chips > machine.chips and generation.uses_workload_policy,
        accelerator_nics=machine.accelerator_nics,
    )
