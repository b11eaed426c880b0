"""Fingerprints of arrays on a mesh: 64 bits each, the same however an array is split.

The sums run on the devices and are joined by one small collective, so a fingerprint costs about one pass over the
memory. Any change of a single element changes both halves. Other changes are missed with a probability of about 2**-64,
or 2**-55 if the same bit of two elements flips. Fingerprints do not protect against forgery.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import zip_longest

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from workloads.spec import SliceSpec
from workloads.training.failures import ReplicasDiffer, first_of
from workloads.training.layout import Split, Tree
from workloads.training.mesh import FSDP, REPLICA, STAGE, TENSOR

type Fingerprints = dict[str, str]
"""Fingerprints of 16 hexadecimal digits by an array's path in the tree, such as `parameters.blocks.gate`."""

type Take = Callable[[Tree], list[Fingerprints]]
"""Function that takes the fingerprints of a tree's arrays in each replica of the mesh. All processes of the job must
call it at the same time."""


def compile_fingerprints(shapes: Tree) -> Take:
    """Compile the function that takes fingerprints of trees with the shapes and shardings of `shapes`."""
    leaves = jax.tree_util.tree_leaves_with_path(shapes)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]
    mesh: Mesh = leaves[0][1].sharding.mesh
    specs = [leaf.sharding.spec for _, leaf in leaves]

    def local(tree: Tree) -> jax.Array:
        return _of_all_replicas(jax.tree.leaves(tree), specs)

    in_specs = (jax.tree.unflatten(jax.tree.structure(shapes), specs),)
    over_mesh = jax.shard_map(local, mesh=mesh, in_specs=in_specs, out_specs=PartitionSpec(), check_vma=False)
    compiled = jax.jit(over_mesh).lower(shapes).compile()

    def take(tree: Tree) -> list[Fingerprints]:
        replicas = np.asarray(compiled(tree))
        return [{name: f"{a:08x}{b:08x}" for name, (a, b) in zip(names, one, strict=True)} for one in replicas]

    return take


def differences(expected: Fingerprints, replicas: Sequence[Fingerprints]) -> list[str]:
    """Return a text for each array that is not as expected, with the replicas where it differs."""
    names = dict.fromkeys([*expected, *(name for one in replicas for name in one)])
    found = {
        name: [index for index, one in enumerate(replicas) if one.get(name) != expected.get(name)] for name in names
    }
    return [
        f"{name} (expected {expected.get(name)}, got {replicas[where[0]].get(name)} in replica"
        f" {', '.join(map(str, where))})"
        for name, where in found.items()
        if where
    ]


def _of_all_replicas(shards: list[jax.Array], specs: list[PartitionSpec]) -> jax.Array:
    """Return the sums uint32 [replica, array, 2]. It runs inside a shard_map over the whole mesh."""
    sums = jnp.stack([_sums(shard, spec) for shard, spec in zip(shards, specs, strict=True)])
    # Along an axis that an array is not split over, only its first device counts.
    for axis in (STAGE, FSDP, TENSOR):
        split = jnp.array([axis in Split(spec).axes for spec in specs])[:, None]
        sums = jax.lax.psum(jnp.where(split | (jax.lax.axis_index(axis) == 0), sums, 0), axis)
    return jax.lax.all_gather(sums, REPLICA)


# Traced once for all arrays of the same kind, such as a weight and its moments.
@partial(jax.jit, static_argnums=1)
def _sums(shard: jax.Array, spec: PartitionSpec) -> jax.Array:
    """Return two sums modulo 2**32 over this device's elements. They depend on positions, but not on the order."""
    bits = jax.lax.bitcast_convert_type(shard, jnp.dtype(f"uint{8 * shard.dtype.itemsize}")).astype(jnp.uint32)
    position = _mixed(_positions(shard.shape, spec))
    # The factor is odd and the mixing is one-to-one, so no two values of an element have the same summand.
    summands = (_mixed(bits * (position | 1)), _mixed(bits ^ position))

    # This is one reduction of two operands, for which XLA makes vector code on CPU, but not for jnp.sum of integers.
    def add(left: tuple[jax.Array, jax.Array], right: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        return left[0] + right[0], left[1] + right[1]

    zero = np.uint32(0)
    return jnp.stack(jax.lax.reduce(summands, (zero, zero), add, tuple(range(shard.ndim))))


def _positions(shape: tuple[int, ...], spec: PartitionSpec) -> jax.Array:
    """Return each element's position in the full array, in row-major order, modulo 2**32."""
    position = jnp.zeros(shape, jnp.uint32)
    for dimension, (size, axis) in enumerate(zip_longest(shape, spec)):
        shards, shard = (jax.lax.axis_size(axis), jax.lax.axis_index(axis)) if axis else (1, 0)
        within = jax.lax.broadcasted_iota(jnp.uint32, shape, dimension)
        position = position * np.uint32(size * shards % 2**32) + within + jnp.asarray(shard * size).astype(jnp.uint32)
    return position


def _mixed(value: jax.Array) -> jax.Array:
    """Mix 32 bits one-to-one, so that each input bit changes about half of the output bits.

    https://github.com/skeeto/hash-prospector: lowbias32.
    """
    value = (value ^ (value >> 16)) * np.uint32(0x7FEB352D)
    value = (value ^ (value >> 15)) * np.uint32(0x846CA68B)
    return value ^ (value >> 16)


class Replicas:
    """The replicas of one mesh, and the slices of each of them."""

    def __init__(self, devices: np.ndarray, slices: SliceSpec):
        """`devices` is [replica, ...], as in the mesh."""
        self._slices = [
            sorted({device.process_index // slices.hosts for device in replica.flat}) for replica in devices
        ]

    @property
    def several(self) -> bool:
        return len(self._slices) > 1

    def require_equal(self, step: int, found: Sequence[Fingerprints]) -> Fingerprints:
        """Return the common fingerprints of all replicas after `step` from those of each replica in `found`.

        Raises:
            ReplicasDiffer: the replicas differ.
        """
        expected, count = Counter(tuple(one.items()) for one in found).most_common(1)[0]
        if wrong := differences(dict(expected), found):
            suspects = [index for index, one in enumerate(found) if tuple(one.items()) != expected]
            if 2 * count <= len(found):
                suspects = list(range(len(found)))
            named = sorted({slice_ for replica in suspects for slice_ in self._slices[replica]})
            plural = "s" if len(named) > 1 else ""
            raise ReplicasDiffer(
                f"step {step}: all slices must hold the same, but slice{plural} {' or '.join(map(str, named))} computed"
                f" wrongly: {first_of(wrong)}; nothing of it is saved, and the next attempt continues from the last"
                " checkpoint"
            )
        return dict(expected)
