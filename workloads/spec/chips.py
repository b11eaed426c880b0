"""What the compiler's target and the estimate need to know of a TPU generation in addition to the JobSpec.

These are the names of libtpu's topologies and the rates of links. Peak FLOP/s and memory come with the JobSpec, from
the table in `infra.tpu`."""

from dataclasses import dataclass
from functools import cache

from workloads.spec.slices import SliceSpec


class Unsupported(Exception):
    """Raised for what the preflight cannot compile; the message says what it can, or what to install."""


_LINKS_OF_3D = 6
_WRAPPED_2D = 16
"""Chips along a dimension of a 2D slice that wraps around."""


@dataclass(frozen=True)
class Chip:
    """One generation.

    Links and DCN by https://jax-ml.github.io/scaling-book/tpus, whose "typical" DCN stands for v4.
    """

    topology_prefix: str
    """Before the colon in libtpu's names of topologies."""
    flops_per_cycle: int
    """Of all matrix units of a JAX device: multiplications and additions of bf16; with the rated peak it
    gives the clock that XLA's cycles count."""
    ici_links: int
    """Of a chip on a torus, two for each dimension; see `ici_bytes_per_second`."""
    gb_per_second_per_link: float
    """In one direction."""
    dcn_gb_per_second: float
    """Of a chip: its share of the network interfaces of its host."""
    usable_hbm_gib_per_device: float
    """What the compiler lets a program have; named in its own message when a program needs more."""
    config: str | None = None
    """libtpu's `chip_config_name`, where its default is not what GKE runs."""


@cache
def _chips() -> dict[str, Chip]:
    wide, narrow = 2 * 256 * 256, 2 * 128 * 128
    return {
        "v4": Chip("v4", 8 * narrow, 6, 45, 6.25, 30.75, config="megacore"),
        "v5e": Chip("v5e", 4 * narrow, 4, 45, 3.125, 15.75),
        "v5p": Chip("v5p", 8 * narrow, 6, 90, 6.25, 95.73),
        "v6e": Chip("v6e", 4 * wide, 4, 90, 12.5, 31.24),
        "7x": Chip("tpu7x", 4 * wide, 6, 90, 12.5, 94.74),
    }


def chip_of(slices: SliceSpec) -> Chip:
    """The chip of `slices`.

    Raises:
        Unsupported: the generation has none.
    """
    if slices.generation not in _chips():
        raise Unsupported(
            f"a program for {slices.generation!r} cannot be compiled ahead of time; choose one of {', '.join(_chips())}"
        )
    return _chips()[slices.generation]


def clock_hz(slices: SliceSpec) -> float:
    """Rate of the cycles in XLA's estimates."""
    return device_peak(slices) / chip_of(slices).flops_per_cycle


def device_peak(slices: SliceSpec) -> float:
    """Rated bf16 FLOP/s of one JAX device."""
    return slices.peak_bf16_tflops_per_chip * 1e12 / slices.devices_per_chip


def ici_bytes_per_second(slices: SliceSpec) -> float:
    """That leave one JAX device when all links of its chip are busy, for the chips with the fewest links.

    Along a dimension that wraps around each chip has two links; along others the first and the last chip have one.
    All dimensions of three wrap around if each is a multiple of 4, and of two those of 16 chips
    (https://jax-ml.github.io/scaling-book/tpus).
    """
    chip = chip_of(slices)
    sizes = [int(size) for size in slices.topology.split("x")]
    cubes = all(size % 4 == 0 for size in sizes)
    wraps = [cubes if chip.ici_links == _LINKS_OF_3D else size == _WRAPPED_2D for size in sizes]
    links = sum(min(size - 1, 2 if wrap else 1) for size, wrap in zip(sizes, wraps, strict=True))
    # A single chip has no neighbour, and nothing to send.
    return max(links, 1) * chip.gb_per_second_per_link * 1e9 / slices.devices_per_chip


def dcn_bytes_per_second(slices: SliceSpec) -> float:
    """That leave one JAX device for other slices."""
    return chip_of(slices).dcn_gb_per_second * 1e9 / slices.devices_per_chip
