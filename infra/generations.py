"""The TPU table: generations, their machine types, and the topologies that GKE makes of them.

Owns every number about chips and hosts; nothing else in the repository repeats one. What one slice
is made of follows in `infra.accelerators`. GKE's node pools take a machine type and a topology. Cloud TPU's
accelerator types, such as `v5p-32`, are known only so that they can be understood.

Sources: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus for machine types,
https://cloud.google.com/tpu/docs/system-architecture-tpu-vm for chips, and for the lists of
topologies AI-Hypercomputer/xpk and google/pathways-job, which agree; for network interfaces
GoogleCloudPlatform/cluster-autoscaler.
"""

from dataclasses import dataclass
from functools import cache

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
