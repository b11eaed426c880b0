"""Whether the chips compute and pass on what they should, before training trusts them.

Owns the two rounds of the check and the judgement whose fault it is. First each device multiplies matrices of small
integers, and the host compares the product without the device's help. Only then, for no host may be missing there,
collectives run within each slice and across all, on numbers whose sums every host knows. A chip that errs now and
then may pass: see `compare_slices_every_steps` for what is watched later.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from workloads.spec import SliceSpec
from workloads.training.failures import BadHost, OutOfMemory, Suspect, WrongCollective, is_out_of_memory
from workloads.training.runtime import Place, Processes

MINUTES = 10.0
"""How long the check may take before the host counts as hung; it takes seconds, most of them compiling."""

SIZE = {"tpu": 8192, "cpu": 256}
"""Rows and columns of the matrices by platform. On a TPU all of the matrix unit and 512 MiB of memory take part, for
a millisecond of computing and some seconds of one core of the host; on a CPU the path is the same, and cheap."""

QUICK_SIZE = {"tpu": 2048, "cpu": 256}
"""The same for a check before a short program: 8 MiB of memory, and a tenth of a second of the host."""

EXACT = 2**24
"""Up to here float32 holds every integer."""

PROBES = 2**15
"""Numbers of the vector that products are compared by are below it. Any one wrong element of a row shows; several
cancel by chance in about one of so many."""

WIDTH = 1024
"""Numbers that each device puts into a collective."""

_SLICE, _DEVICE = "slice", "device"
_MODULUS = 251
"""Numbers in collectives are below it: their sums over all devices there can be stay exact in float32."""


@dataclass(frozen=True)
class Findings:
    """What one host found wrong in one round of the check."""

    host: str
    slice: int
    own: tuple[str, ...] = ()
    """About its own devices alone."""
    within: tuple[str, ...] = ()
    """In collectives of its slice."""
    across: tuple[str, ...] = ()
    """In collectives over all slices."""


def check_slices(
    slices: SliceSpec, devices: Sequence[Any], place: Place, processes: Processes, sizes: Mapping[str, int]
) -> None:
    """Let all devices compute, with matrices of `sizes`, and communicate; every process comes to the same answer.

    Raises:
        BadHost: a host multiplies wrongly, or collectives within a slice are wrong.
        WrongCollective: collectives across slices are wrong, and whose fault it is cannot be told.
    """
    local = [device for device in devices if device.process_index == processes.index]
    own = Findings(place.host, place.slice, own=wrong_products(local, sizes))
    judge(_gathered("products", own, processes))
    own = Findings(place.host, place.slice, **wrong_collectives(slices, devices))
    judge(_gathered("collectives", own, processes))


def judge(hosts: Sequence[Findings]) -> None:
    """Raise the failure that the findings of all hosts amount to, if any."""
    if bad := [host for host in hosts if host.own]:
        named = "; ".join(f"host {host.host} of slice {host.slice}: {_first(host.own)}" for host in bad)
        raise BadHost(named, _suspects(bad))
    if saw := [host for host in hosts if host.within]:
        named = "; ".join(f"host {host.host} of slice {host.slice} saw: {_first(host.within)}" for host in saw)
        raise BadHost(f"{named}; which host of the slice is at fault cannot be told", _suspects(saw))
    if saw := [host for host in hosts if host.across]:
        named = "; ".join(f"host {host.host} of slice {host.slice} saw: {_first(host.across)}" for host in saw)
        raise WrongCollective(
            f"{named}; within each slice all is right, so whose fault it is cannot be told: look at the network"
            " between the slices"
        )


def wrong_products(devices: Sequence[Any], sizes: Mapping[str, int]) -> tuple[str, ...]:
    """What these devices of this host multiply wrongly, one sentence for each device.

    Raises:
        OutOfMemory: something else fills a device.
    """
    task = Multiplication.of_size(sizes[devices[0].platform])
    try:
        # All of them, since the way back from the device may fail as well.
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
    """Two matrices of integers so small that every sum on the way to their product is exact in float32."""

    left: np.ndarray
    right: np.ndarray
    probe: np.ndarray
    """A vector by which a product is compared: multiplying it by one matrix after the other takes O(n^2)."""
    expected: np.ndarray
    """left · (right · probe)."""

    @classmethod
    def of_size(cls, size: int) -> "Multiplication":
        """The same matrices on every host. All numbers, also on the host in float64, are exact integers."""
        random = np.random.default_rng(size)
        largest = largest_entry(size)
        left, right = (random.integers(-largest, largest, (size, size), dtype=np.int8, endpoint=True) for _ in range(2))
        probe = random.integers(1, PROBES, size).astype(np.float64)
        return cls(left, right, probe, _times(left, _times(right, probe)))

    @property
    def size(self) -> int:
        return len(self.probe)

    def wrong_rows(self, product: np.ndarray) -> int:
        """Rows of `product` that are not those of left · right."""
        # Not `!=` after a subtraction: infinities and NaN must count.
        return int(np.sum(~(_times(product, self.probe) == self.expected)))


def largest_entry(size: int) -> int:
    """Of matrices whose product stays exact, and of what one byte holds."""
    return min(math.isqrt(EXACT // size), 127)


def products(task: Multiplication, devices: Sequence[Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Name and product of each device, one after the other on the host."""
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
    """What this host's devices got wrongly, `within` slices and `across` them; all processes call it at once."""
    ordered = sorted(devices, key=lambda device: (device.process_index, device.id))
    mesh = Mesh(np.array(ordered).reshape(slices.count, -1), (_SLICE, _DEVICE))
    numbers = _numbers(*mesh.devices.shape)
    summed, gathered, across = collectives(mesh, numbers)
    own_slice, every_slice = numbers.sum(axis=1), numbers.sum(axis=0)
    return {
        "within": (
            *_differing("sum over its slice", summed, lambda slice_, _: own_slice[slice_]),
            *_differing("gathering from its slice", gathered, lambda slice_, _: numbers[slice_].ravel()),
        ),
        "across": tuple(_differing("sum over all slices", across, lambda _, device: every_slice[device])),
    }


def collectives(mesh: Mesh, numbers: np.ndarray) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What each device [slice, device] gets: its slice's sum and its slice's numbers, and the sum of all slices' at
    its place."""
    split = PartitionSpec(_SLICE, _DEVICE)
    own = jax.make_array_from_callback(numbers.shape, NamedSharding(mesh, split), lambda index: numbers[index])

    def run(own: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        gathered = jax.lax.all_gather(own, _DEVICE, axis=2, tiled=True)
        return jax.lax.psum(own, _DEVICE), gathered, jax.lax.psum(own, _SLICE)

    over_mesh = jax.shard_map(run, mesh=mesh, in_specs=split, out_specs=split, check_vma=False)
    return jax.block_until_ready(jax.jit(over_mesh)(own))


def _numbers(slices: int, devices: int) -> np.ndarray:
    """[slice, device, number]: others on each device."""
    count = slices * devices * WIDTH
    return (np.arange(count) * 7 % _MODULUS).reshape(slices, devices, WIDTH).astype(np.float32)


def _differing(what: str, got: jax.Array, expected: Callable[[int, int], np.ndarray]) -> Iterator[str]:
    for shard in got.addressable_shards:
        slice_, device = shard.index[0].start or 0, shard.index[1].start or 0
        wrong = int(np.sum(~(np.asarray(shard.data).ravel() == expected(slice_, device))))
        if wrong:
            yield f"a {what} with {wrong} wrong numbers at device {shard.device.id}"


def _gathered(name: str, own: Findings, processes: Processes) -> list[Findings]:
    words = processes.gather(f"slice check/{name}", json.dumps(asdict(own)))
    return [Findings(**json.loads(word)) for word in words]


def _times(matrix: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Their product in float64, a few rows at a time: the whole matrix in float64 would take 512 MiB."""
    return np.concatenate([rows.astype(np.float64) @ vector for rows in np.array_split(matrix, 16)])


def _suspects(hosts: Sequence[Findings]) -> set[Suspect]:
    return {Suspect(host.slice, host.host) for host in hosts}


def _first(faults: Sequence[str]) -> str:
    return faults[0] if len(faults) == 1 else f"{faults[0]} and {len(faults) - 1} more"
