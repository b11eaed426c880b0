"""Checks computation and communication of the chips before training.

The check has two rounds. First, each device multiplies matrices of small integers, and the host compares the product
without the device's help. Then collectives run within each slice and across all slices, on numbers whose sums every
host knows. They come second because no host may be missing. A chip with rare errors may pass; during training,
`compare_slices_every_steps` finds those.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from workloads.spec import SliceSpec
from workloads.training.failures import BadHost, OutOfMemory, Suspect, WrongCollective, first_of, is_out_of_memory
from workloads.training.runtime import HostPosition, Processes

MINUTES = 10.0
"""Time limit of the check in minutes, after which a host counts as hung. It takes seconds, most of them to compile."""

SIZE = {"tpu": 8192, "cpu": 256}
"""Rows and columns of the matrices by platform. On a TPU, this uses all of the matrix unit and 512 MiB of memory, and
takes a millisecond of the chip and some seconds of one core of the host. On a CPU, it is the same code, but cheap."""

QUICK_SIZE = {"tpu": 2048, "cpu": 256}
"""Rows and columns for a check before a short program. It takes 8 MiB of memory and 0.1 s of the host."""

EXACT = 2**24
"""Limit up to which float32 represents every integer."""

PROBES = 2**15
"""Limit of the numbers in the vector that products are compared with. A single wrong element of a row is always found.
Several cancel out by chance in about one of this many cases."""

WIDTH = 1024
"""Number of values that each device contributes to a collective."""

_SLICE, _DEVICE = "slice", "device"
_MODULUS = 251
"""Limit of the values in collectives, so that their sums over the largest number of devices are exact in float32."""


@dataclass(frozen=True)
class Findings:
    """Errors that one host found in one round of the check."""

    host: str
    slice: int
    own: tuple[str, ...] = ()
    """Errors of its own devices."""
    within: tuple[str, ...] = ()
    """Errors in collectives of its slice."""
    across: tuple[str, ...] = ()
    """Errors in collectives over all slices."""


def check_slices(
    slices: SliceSpec, devices: Sequence[Any], position: HostPosition, processes: Processes, sizes: Mapping[str, int]
) -> None:
    """Check computation of all devices, with matrices of `sizes`, and communication. The result is the same everywhere.

    Raises:
        BadHost: a host multiplies wrongly, or collectives within a slice are wrong.
        WrongCollective: collectives across slices are wrong, so the faulty host is unknown.
    """
    local = [device for device in devices if device.process_index == processes.index]
    own = Findings(position.host, position.slice, own=wrong_products(local, sizes))
    judge([Findings(**each) for each in processes.gather("slice check/products", asdict(own))])
    own = Findings(position.host, position.slice, **wrong_collectives(slices, devices))
    judge([Findings(**each) for each in processes.gather("slice check/collectives", asdict(own))])


def judge(hosts: Sequence[Findings]) -> None:
    """Raise the failure for the findings of all hosts, if there is one."""
    if bad := [host for host in hosts if host.own]:
        named = "; ".join(f"host {host.host} of slice {host.slice}: {first_of(host.own)}" for host in bad)
        raise BadHost(named, _suspects(bad))
    if saw := [host for host in hosts if host.within]:
        named = "; ".join(f"host {host.host} of slice {host.slice} saw: {first_of(host.within)}" for host in saw)
        raise BadHost(f"{named}; the faulty host of the slice is unknown", _suspects(saw))
    if saw := [host for host in hosts if host.across]:
        named = "; ".join(f"host {host.host} of slice {host.slice} saw: {first_of(host.across)}" for host in saw)
        raise WrongCollective(
            f"{named}; collectives within each slice are right, so the faulty host is unknown: check the network"
            " between the slices"
        )


def wrong_products(devices: Sequence[Any], sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Return a sentence for each of these devices that multiplies wrongly.

    Raises:
        OutOfMemory: something else fills a device.
    """
    task = Multiplication.of_size(sizes[devices[0].platform])
    try:
        # The whole loop is in the try block, because copying from the device may fail too.
        wrong = {name: task.wrong_rows(product) for name, product in products(task, devices)}
    except jax.errors.JaxRuntimeError as error:
        cause = str(error).splitlines()[0]
        if is_out_of_memory(error):
            raise OutOfMemory(f"the slice check does not fit a device, so something else fills it ({cause})") from error
        return (f"its devices cannot multiply: {cause}",)
    return tuple(
        f"{name} multiplied {task.size} x {task.size} integers, and {rows} rows of the product are wrong"
        for name, rows in wrong.items()
        if rows
    )


@dataclass(frozen=True)
class Multiplication:
    """Two matrices of integers small enough that every partial sum of their product is exact in float32."""

    left: np.ndarray
    right: np.ndarray
    probe: np.ndarray
    """Vector to compare products with. Multiplying it by one matrix after the other takes O(n^2)."""
    expected: np.ndarray
    """left · (right · probe)."""

    @classmethod
    def of_size(cls, size: int) -> "Multiplication":
        """Return the same matrices on every host. All numbers are exact integers, also in float64 on the host."""
        random = np.random.default_rng(size)
        largest = largest_entry(size)
        left, right = (random.integers(-largest, largest, (size, size), dtype=np.int8, endpoint=True) for _ in range(2))
        probe = random.integers(1, PROBES, size).astype(np.float64)
        return cls(left, right, probe, _times(left, _times(right, probe)))

    @property
    def size(self) -> int:
        return len(self.probe)

    def wrong_rows(self, product: np.ndarray) -> int:
        """Return the number of rows of `product` that differ from left · right."""
        # This is not `!=`, so that NaN counts as wrong.
        return int(np.sum(~(_times(product, self.probe) == self.expected)))


def largest_entry(size: int) -> int:
    """Return the largest entry of matrices whose product is exact, and that fits in one byte."""
    return min(math.isqrt(EXACT // size), 127)


def products(task: Multiplication, devices: Sequence[Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield name and product of each device, so that only one product at a time is on the host."""
    mesh = Mesh(np.array(devices), (_DEVICE,))
    everywhere = NamedSharding(mesh, PartitionSpec())
    factors = [jax.device_put(factor, everywhere) for factor in (task.left, task.right)]

    def multiply(left: jax.Array, right: jax.Array) -> jax.Array:
        left, right = left.astype(jnp.bfloat16), right.astype(jnp.bfloat16)
        return jnp.matmul(left, right, preferred_element_type=jnp.float32)[None]

    specs = (PartitionSpec(), PartitionSpec())
    each = jax.shard_map(multiply, mesh=mesh, in_specs=specs, out_specs=PartitionSpec(_DEVICE), check_vma=False)
    done = jax.block_until_ready(jax.jit(each)(*factors))
    return ((f"device {shard.device.id}", np.asarray(shard.data)[0]) for shard in done.addressable_shards)


def wrong_collectives(slices: SliceSpec, devices: Sequence[Any]) -> dict[str, tuple[str, ...]]:
    """Return errors of this host's devices in collectives, `within` slices and `across` them.

    All processes must call it at the same time.
    """
    ordered = sorted(devices, key=lambda device: (device.process_index, device.id))
    mesh = Mesh(np.array(ordered).reshape(slices.count, -1), (_SLICE, _DEVICE))
    numbers = _numbers(*mesh.devices.shape)
    summed, gathered, across = collectives(mesh, numbers)
    own_slice, every_slice = numbers.sum(axis=1), numbers.sum(axis=0)
    return {
        "within": (
            *_differences("sum over its slice", summed, lambda slice_, _: own_slice[slice_]),
            *_differences("gathering from its slice", gathered, lambda slice_, _: numbers[slice_].ravel()),
        ),
        "across": tuple(_differences("sum over all slices", across, lambda _, device: every_slice[device])),
    }


def collectives(mesh: Mesh, numbers: np.ndarray) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return what each device [slice, device] gets: the sum of its slice, the numbers of its slice, and the sum over
    all slices at its position."""
    split = PartitionSpec(_SLICE, _DEVICE)
    own = jax.make_array_from_callback(numbers.shape, NamedSharding(mesh, split), lambda index: numbers[index])

    def run(own: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        gathered = jax.lax.all_gather(own, _DEVICE, axis=2, tiled=True)
        return jax.lax.psum(own, _DEVICE), gathered, jax.lax.psum(own, _SLICE)

    over_mesh = jax.shard_map(run, mesh=mesh, in_specs=split, out_specs=split, check_vma=False)
    return jax.block_until_ready(jax.jit(over_mesh)(own))


def _numbers(slices: int, devices: int) -> np.ndarray:
    """Return numbers [slice, device, number], which differ on each device."""
    count = slices * devices * WIDTH
    return (np.arange(count) * 7 % _MODULUS).reshape(slices, devices, WIDTH).astype(np.float32)


def _differences(what: str, got: jax.Array, expected: Callable[[int, int], np.ndarray]) -> Iterator[str]:
    for shard in got.addressable_shards:
        slice_, device = shard.index[0].start or 0, shard.index[1].start or 0
        wrong = int(np.sum(~(np.asarray(shard.data).ravel() == expected(slice_, device))))
        if wrong:
            yield f"a {what} with {wrong} wrong numbers at device {shard.device.id}"


def _times(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Multiply in float64, a few rows at a time, because the whole matrix in float64 would take 512 MiB."""
    return np.concatenate([rows.astype(np.float64) @ vector for rows in np.array_split(matrix, 16)])


def _suspects(hosts: Sequence[Findings]) -> set[Suspect]:
    return {Suspect(host.slice, host.host) for host in hosts}
