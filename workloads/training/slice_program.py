"""The programs of one slice that trains with others without a common JAX world, and its arrays on the host.

A step is cut in two: the gradients of a part of the batch, which leave the devices, and the update with their sum over
all parts. Each host handles only the shards on its own devices.
"""

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from workloads.spec import JobSpec
from workloads.training.layout import Tree
from workloads.training.model import Summed
from workloads.training.restore import shards_by_device
from workloads.training.step import BATCH, CompiledProgram, Program, StepResult, TrainState


@dataclass(frozen=True)
class Gradients:
    """Gradients of one part on this host."""

    vector: np.ndarray
    """Shards of all gradients, one after the other, in the type in which they are sent."""
    sums: np.ndarray
    """The fields of `Summed` as float32 [4]."""


class SliceFunctions(Program):
    """The functions of one slice on the mesh of its devices, made for its part of the batch
    (`JobSpec.of_one_slice`). Nothing is compiled before a call of `compile_*`."""

    def compile_step(self, **more: Any) -> jax.stages.Compiled:
        """Compile (parameters, tokens[, frozen weights]) -> (Summed, gradients)."""

        def local(parameters: Tree, tokens: jax.Array, frozen: Tree | None = None) -> tuple[Summed, Tree]:
            total, gradients = self._local_gradients(parameters, tokens, frozen)
            return total, jax.tree.map(lambda leaf: leaf.astype(self._dtype), gradients)

        specs = self._specs.parameters
        over_mesh = self._over_mesh(local, (specs, BATCH, *self._frozen_specs), (PartitionSpec(), specs))
        lowered = jax.jit(over_mesh).lower(self.state_shapes.parameters, self.batch, *self._frozen)
        return lowered.compile(self.compiler_options | more)

    def compile_update(self, **more: Any) -> jax.stages.Compiled:
        """Compile (TrainState, sums, summed gradients, next batch) -> (TrainState, StepResult). The state's memory is
        reused."""

        def local(
            state: TrainState, sums: jax.Array, gradients: Tree, batch: jax.Array
        ) -> tuple[TrainState, StepResult]:
            after, result = self._updated(state, Summed(*sums), gradients)
            return TrainState(after.step, batch, after.parameters, after.optimizer), result

        everywhere = PartitionSpec()
        in_specs = (self._specs, everywhere, self._specs.parameters, everywhere)
        update = self._over_mesh(local, in_specs, (self._specs, everywhere))
        sums, batch = jax.ShapeDtypeStruct((len(Summed._fields),), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
        gradients = self.gradient_shapes(np.dtype(np.float32))
        lowered = jax.jit(update, donate_argnums=0).lower(self.state_shapes, sums, gradients, batch)
        return lowered.compile(self.compiler_options | more)

    @property
    def wire(self) -> np.dtype:
        """Type in which gradients are sent, which is that of the computation."""
        return np.dtype(self._dtype)

    @property
    def outer_steps(self) -> bool:
        """Whether slices train on their own between outer steps."""
        return self._spec.training.sync_every > 1

    def gradient_shapes(self, dtype: np.dtype) -> Tree:
        """Return the shapes of the gradients in a type: `wire`, or float32 after the sum."""
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, dtype, sharding=leaf.sharding), self.state_shapes.parameters
        )

    def _of_mean(self, total: Summed, gradients: Tree) -> Tree:
        # Each part's gradients are those of the mean over all positions of one part.
        positions = self._spec.training.global_batch * self._spec.training.sequence_length
        return jax.tree.map(lambda leaf: leaf * (positions / total.counted), gradients)


class SliceProgram(SliceFunctions, CompiledProgram):
    """The compiled functions of one slice."""

    def __init__(self, spec: JobSpec, mesh: Mesh, compiler: Executor):
        """`spec` is the job of one slice (`JobSpec.of_one_slice`), and `mesh` has its devices."""
        super().__init__(spec, mesh, compiler)
        self._update = compiler.submit(self.compile_update)
        self.shards = Shards(self.state_shapes.parameters, self.wire)

    def gradients(self, state: TrainState, part: jax.Array) -> Gradients:
        """Return the gradients of one part of the batch, when the devices have computed them."""
        total, gradients = self.gradients_on_devices(state, part)
        return Gradients(self.shards.vector(gradients), np.array(jax.device_get(total), np.float32))

    def gradients_on_devices(self, state: TrainState, part: jax.Array) -> tuple[Summed, Tree]:
        """Return the sums and the gradients of one part of the batch, which stay on the devices."""
        return self._step.result()[0](state.parameters, part, *self._frozen_weights)

    @property
    def whole_shapes(self) -> TrainState:
        """Shapes of everything that slices give each other and that a checkpoint has."""
        return self.state_shapes

    def inner_step(self, state: TrainState, part: jax.Array, batch: int) -> tuple[TrainState, StepResult, float]:
        """Run the optimizer with the gradients of one part alone. Return the number of its tokens that count too.

        `state` is donated; `batch` is its next one.
        """
        total, gradients = self.gradients_on_devices(state, part)
        gradients = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), gradients)
        sums = np.array(jax.device_get(total), np.float32)
        state, result = self.update_on_devices(state, sums, gradients, batch)
        return state, result, float(Summed(*sums).counted)

    def update(
        self, state: TrainState, sums: np.ndarray, vector: np.ndarray, batch: int
    ) -> tuple[TrainState, StepResult]:
        """Run the optimizer with the sum of the gradients of all parts. `state` is donated; `batch` is its next one."""
        return self.update_on_devices(state, sums, self.shards.arrays(vector), batch)

    def update_on_devices(
        self, state: TrainState, sums: np.ndarray, gradients: Tree, batch: int
    ) -> tuple[TrainState, StepResult]:
        """Do the same with summed gradients that are on the devices, in float32."""
        return self._update.result()(state, sums, gradients, np.int32(batch))


class Shards:
    """The parts of a tree of arrays that this host holds, each once, in an order that is the same in every slice."""

    def __init__(self, shapes: Tree, wire: np.dtype):
        """`shapes` has the shape and the sharding of each array. Vectors are of type `wire` or float32."""
        self.wire = wire
        self._leaves, self._structure = jax.tree.flatten(shapes)
        self._pieces = [_pieces(leaf) for leaf in self._leaves]
        self.size = sum(piece.size for pieces in self._pieces for piece in pieces)
        """Number of elements of a vector."""

    def vector(self, tree: Tree) -> np.ndarray:
        """Return all elements on this host as one vector of the type in which they are sent."""
        return np.concatenate([found.ravel().astype(self.wire, copy=False) for found in self.host_arrays(tree)])

    def arrays(self, vector: np.ndarray) -> Tree:
        """Return the arrays of the tree on the devices, with the elements of `vector`, which must not change later."""
        sizes = [piece.size for pieces in self._pieces for piece in pieces]
        shapes = [piece.shape for pieces in self._pieces for piece in pieces]
        cut = np.split(vector, np.cumsum(sizes)[:-1])
        return self.put([part.reshape(shape) for part, shape in zip(cut, shapes, strict=True)])

    def empty(self) -> list[np.ndarray]:
        """Return arrays for what `host_arrays` returns in another slice."""
        return [
            np.empty(piece.shape, leaf.dtype)
            for leaf, pieces in zip(self._leaves, self._pieces, strict=True)
            for piece in pieces
        ]

    def put(self, arrays: Sequence[np.ndarray]) -> Tree:
        """Return the tree on the devices from its shards."""
        left = iter(arrays)
        leaves: list[jax.Array] = []
        for leaf, pieces in zip(self._leaves, self._pieces, strict=True):
            shards: list[jax.Array] = []
            for piece in pieces:
                found = next(left).astype(leaf.dtype, copy=False)
                shards += [jax.device_put(found, device) for device in piece.devices]
            leaves.append(jax.make_array_from_single_device_arrays(leaf.shape, leaf.sharding, shards))
        return jax.tree.unflatten(self._structure, leaves)

    def host_arrays(self, tree: Tree) -> list[np.ndarray]:
        """Return the shards of a tree."""
        return [np.asarray(shard) for shard in self.device_arrays(tree)]

    def device_arrays(self, tree: Tree) -> list[jax.Array]:
        """Return the shards of a tree, each on one of the devices that hold it."""
        found: list[jax.Array] = []
        for leaf, pieces in zip(jax.tree.leaves(tree), self._pieces, strict=True):
            held = shards_by_device(leaf)
            found += [held[piece.devices[0]] for piece in pieces]
        return found


@dataclass(frozen=True)
class _Piece:
    """A shard of one array."""

    shape: tuple[int, ...]
    devices: list[Any]
    """This host's devices that hold it."""

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


def _pieces(leaf: Any) -> list[_Piece]:
    """Return this host's shards of an array in the order of their places, which is the same in every slice."""
    devices: dict[tuple[int, ...], list[Any]] = {}
    for device, index in leaf.sharding.addressable_devices_indices_map(leaf.shape).items():
        devices.setdefault(tuple(part.start or 0 for part in index), []).append(device)
    shape = leaf.sharding.shard_shape(leaf.shape)
    return [_Piece(shape, devices[place]) for place in sorted(devices)]
