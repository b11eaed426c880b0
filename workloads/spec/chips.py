"""Facts of each TPU generation for the compiler and the estimate that the JobSpec does not have.

These are the names of libtpu's topologies and the rates of links. Peak FLOP/s and memory are in the JobSpec, which
takes them from the table in `infra.stack.tpu`."""

from dataclasses import dataclass

from workloads.spec.slices import SliceSpec


class Unsupported(Exception):
    """Raised for a job that the preflight cannot compile. The message says what to change or to install."""


_LINKS_OF_3D = 6
_WRAPPED_2D = 16
"""Number of chips along a dimension of a 2D slice that wraps around."""


@dataclass(frozen=True)
class Chip:
    """Facts of one generation.

    Links and DCN are from https://jax-ml.github.io/scaling-book/tpus. v4 has its "typical" DCN rate.
    """

    topology_prefix: str
    """Part before the colon in libtpu's names of topologies."""
    flops_per_cycle: int
    """bf16 multiplications and additions per cycle of all matrix units of a JAX device. Divided into the rated peak, it
    gives the clock rate that XLA's cycles refer to."""
    ici_links: int
    """Number of links of a chip on a torus, two for each dimension. See `ici_bytes_per_second`."""
    gb_per_second_per_link: float
    """GB/s of one link in one direction."""
    dcn_gb_per_second: float
    """GB/s of a chip: its share of the network interfaces of its host."""
    usable_hbm_gib_per_device: float
    """Memory in GiB that the compiler lets a program use. Its error message has this number if a program needs more."""
    grouped_efficiency: float
    """Share of the peak that the kernels of grouped products reach on experts of the size of Mixtral's, counted in the
    FLOPs of their rows. v5p: what MaxText's published step of Mixtral 8x7B leaves for them (`benchmarks.md`). v6e: what
    the tiles and the schedule of libtpu's `jax.lax.ragged_dot` allow; nothing is known of the other kernels. v4 and v5e
    have the matrix units of v5p, 7x those of v6e."""
    config: str | None = None
    """libtpu's `chip_config_name`, if GKE does not run the default."""


_WIDE, _NARROW = 2 * 256 * 256, 2 * 128 * 128
_V5P_GROUPED, _V6E_GROUPED = 0.76, 0.66
_CHIPS = {
    "v4": Chip("v4", 8 * _NARROW, 6, 45, 6.25, 30.75, _V5P_GROUPED, config="megacore"),
    "v5e": Chip("v5e", 4 * _NARROW, 4, 45, 3.125, 15.75, _V5P_GROUPED),
    "v5p": Chip("v5p", 8 * _NARROW, 6, 90, 6.25, 95.73, _V5P_GROUPED),
    "v6e": Chip("v6e", 4 * _WIDE, 4, 90, 12.5, 31.24, _V6E_GROUPED),
    "7x": Chip("tpu7x", 4 * _WIDE, 6, 90, 12.5, 94.74, _V6E_GROUPED),
}


def chip_of(slices: SliceSpec) -> Chip:
    """Return the chip of `slices`.

    Raises:
        Unsupported: the generation is not in the table.
    """
    if slices.generation not in _CHIPS:
        raise Unsupported(
            f"a program for {slices.generation!r} cannot be compiled ahead of time; choose one of {', '.join(_CHIPS)}"
        )
    return _CHIPS[slices.generation]


def clock_hz(slices: SliceSpec) -> float:
    """Return the clock rate of the cycles in XLA's estimates."""
    return device_peak(slices) / chip_of(slices).flops_per_cycle


def device_peak(slices: SliceSpec) -> float:
    """Return the rated bf16 FLOP/s of one JAX device."""
    return slices.peak_bf16_tflops_per_chip * 1e12 / slices.devices_per_chip


def ici_bytes_per_second(slices: SliceSpec) -> float:
    """Return the bytes per second that one JAX device sends when all links of its chip are busy.

    The rate is that of the chips with the fewest links. Along a dimension that wraps around, each chip has two links.
    Along other dimensions, the first and the last chip have one. On 3D slices, all dimensions wrap around if each is a
    multiple of 4; on 2D slices, dimensions of 16 chips do (https://jax-ml.github.io/scaling-book/tpus).
    """
    chip = chip_of(slices)
    sizes = [int(size) for size in slices.topology.split("x")]
    cubes = all(size % 4 == 0 for size in sizes)
    wraps = [cubes if chip.ici_links == _LINKS_OF_3D else size == _WRAPPED_2D for size in sizes]
    links = sum(min(size - 1, 2 if wrap else 1) for size, wrap in zip(sizes, wraps, strict=True))
    # A single chip has no neighbour and sends nothing.
    return max(links, 1) * chip.gb_per_second_per_link * 1e9 / slices.devices_per_chip


def dcn_bytes_per_second(slices: SliceSpec) -> float:
    """Return the bytes per second that one JAX device sends to other slices."""
    return chip_of(slices).dcn_gb_per_second * 1e9 / slices.devices_per_chip
