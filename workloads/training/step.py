"""One training step and one evaluation step over the whole mesh, compiled.

Owns the training state, its shardings, and the one fully manual shard_map around forward, backward
and update: every collective of a step is written in the sources, none is left to the partitioner.
"""

import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from workloads.data.manifest import token_type
from workloads.spec import JobSpec
from workloads.training.fingerprint import Fingerprints, compile_fingerprints
from workloads.training.mesh import AXES, FSDP
from workloads.training.model import Tree, initial_parameters, local_loss, partition_specs
from workloads.training.optimizer import build_optimizer, clip

BATCH = PartitionSpec(AXES)
"""Sequences are dealt over all devices."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """All that a checkpoint must hold to go on bit by bit."""

    step: Tree
    batch: Tree
    """Number of the next batch: those before it were taken, or left out by a rollback."""
    parameters: Tree
    optimizer: Tree


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StepResult:
    """Mean loss over all tokens of the global batch, and the gradient's global norm before clipping."""

    loss: jax.Array
    gradient_norm: jax.Array
    skipped: jax.Array
    """Whether one of the two is not finite; the weights and the optimizer are then as before the step."""


@dataclass(frozen=True)
class _Timed:
    call: jax.stages.Compiled
    seconds: float


def _timed(compile_function: Callable[[], jax.stages.Compiled]) -> _Timed:
    began = time.monotonic()
    return _Timed(compile_function(), time.monotonic() - began)


class CompiledProgram:
    """A program's functions: step and fingerprints compile in the background at once, the others when first called."""

    def __init__(self, program: "Program", compiler: Executor):
        self.state_shapes = program.state_shapes
        self.batch_sharding = program.batch_sharding
        self._program = program
        self._step = compiler.submit(_timed, program.compile_step)
        self._fingerprints = compiler.submit(compile_fingerprints, program.state_shapes)

    def prepare(self) -> float:
        """Wait until the step can run; the seconds that its compilation took."""
        return self._step.result().seconds

    def initial(self) -> TrainState:
        """A fresh state from the job's seed; compiled here, since a resumed run never needs it."""
        return self._program.compile_initial()()

    def step(self, state: TrainState, batch: jax.Array) -> tuple[TrainState, StepResult]:
        """One optimizer step; `state` is used up."""
        return self._step.result().call(state, batch)

    def fingerprints(self, state: TrainState) -> list[Fingerprints]:
        """What `state` holds, for each replica."""
        return self._fingerprints.result()(state)

    def evaluate(self, parameters: Tree, batch: jax.Array) -> jax.Array:
        """Mean loss of one batch."""
        return self._evaluation(parameters, batch)

    @cached_property
    def _evaluation(self) -> jax.stages.Compiled:
        return self._program.compile_evaluation()


class Program:
    """The functions of one job on one mesh; nothing is compiled until `compile_*` is called."""

    def __init__(self, spec: JobSpec, mesh: Mesh):
        self._spec = spec
        self._mesh = mesh
        self._dtype = jnp.dtype(spec.training.compute_dtype)
        self._optimizer = build_optimizer(spec.optimizer, spec.training.steps)
        shapes = jax.eval_shape(self._initial)
        self._specs = self._state_specs(shapes)
        self.batch_sharding = NamedSharding(mesh, BATCH)
        self.batch_shape = (spec.training.global_batch, spec.training.sequence_length + 1)
        self.state_shapes: TrainState = jax.tree.map(
            lambda leaf, split: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, split)),
            shapes,
            self._specs,
        )

    def compile_initial(self) -> jax.stages.Compiled:
        """() -> TrainState, drawn from the job's seed and born split."""
        shardings = jax.tree.map(lambda leaf: leaf.sharding, self.state_shapes)
        # It runs once: on a CPU, code that is not optimised is there 0.6 s sooner.
        return jax.jit(self._initial, out_shardings=shardings).lower().compile({"xla_backend_optimization_level": 0})

    def compile_step(self) -> jax.stages.Compiled:
        """(TrainState, tokens) -> (TrainState, StepResult); the state's memory is reused."""
        step = self._over_mesh(self._local_step, (self._specs, BATCH), (self._specs, PartitionSpec()))
        return jax.jit(step, donate_argnums=0).lower(self.state_shapes, self._batch()).compile()

    def compile_evaluation(self) -> jax.stages.Compiled:
        """(parameters, tokens) -> mean loss."""
        evaluate = self._over_mesh(self._local_evaluation, (self._specs.parameters, BATCH), PartitionSpec())
        return jax.jit(evaluate).lower(self.state_shapes.parameters, self._batch()).compile()

    def _batch(self) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(
            self.batch_shape, token_type(self._spec.model.vocab_size), sharding=self.batch_sharding
        )

    def _over_mesh(self, local: Callable[..., Tree], in_specs: Tree, out_specs: Tree) -> Callable[..., Tree]:
        return jax.shard_map(local, mesh=self._mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)

    def _initial(self) -> TrainState:
        parameters = initial_parameters(self._spec.model, self._spec.training.seed)
        return TrainState(jnp.int32(0), jnp.int32(0), parameters, self._optimizer.init(parameters))

    def _state_specs(self, shapes: TrainState) -> TrainState:
        parameters = partition_specs(shapes.parameters)
        moments = optax.tree.map_params(
            self._optimizer,
            lambda _, split: split,
            shapes.optimizer,
            parameters,
            transform_non_params=lambda _: PartitionSpec(),
        )
        return TrainState(PartitionSpec(), PartitionSpec(), parameters, moments)

    @property
    def _tokens_per_step(self) -> int:
        return self._spec.training.global_batch * self._spec.training.sequence_length

    def _mean_loss(self, parameters: Tree, tokens: jax.Array) -> jax.Array:
        """This device's part of the mean over all tokens of the global batch."""
        return local_loss(parameters, tokens.astype(jnp.int32), self._spec.model, self._dtype) / self._tokens_per_step

    def _local_evaluation(self, parameters: Tree, tokens: jax.Array) -> jax.Array:
        return jax.lax.psum(self._mean_loss(parameters, tokens), AXES)

    def _local_step(self, state: TrainState, tokens: jax.Array) -> tuple[TrainState, StepResult]:
        loss, gradients = jax.value_and_grad(self._mean_loss)(state.parameters, tokens)
        loss, gradients = self._reduced(loss, gradients)
        norm = self._global_norm(gradients)
        clipped = clip(gradients, norm, self._spec.optimizer.clip_norm)
        updates, optimizer = self._optimizer.update(clipped, state.optimizer, state.parameters)
        parameters = optax.apply_updates(state.parameters, updates)
        finite = jnp.isfinite(loss) & jnp.isfinite(norm)
        parameters, optimizer = jax.tree.map(
            lambda new, old: jnp.where(finite, new, old), (parameters, optimizer), (state.parameters, state.optimizer)
        )
        return TrainState(state.step + 1, state.batch + 1, parameters, optimizer), StepResult(loss, norm, ~finite)

    def _reduced(self, loss: jax.Array, gradients: Tree) -> tuple[jax.Array, Tree]:
        """Sum over the mesh what is not summed yet: the loss and the gradients of whole weights."""
        leaves, structure = jax.tree.flatten(gradients)
        whole = [index for index, split in enumerate(self._splits()) if not split]
        loss, summed = jax.lax.psum((loss, [leaves[index] for index in whole]), AXES)
        for index, leaf in zip(whole, summed, strict=True):
            leaves[index] = leaf
        return loss, jax.tree.unflatten(structure, leaves)

    def _global_norm(self, gradients: Tree) -> jax.Array:
        squares = [jnp.sum(jnp.square(leaf)) for leaf in jax.tree.leaves(gradients)]
        parts = list(zip(squares, self._splits(), strict=True))
        across = jax.lax.psum(sum(square for square, split in parts if split), FSDP)
        return jnp.sqrt(across + sum(square for square, split in parts if not split))

    def _splits(self) -> list[bool]:
        """For each weight, whether its devices hold different rows of it."""
        return [FSDP in split for split in jax.tree.leaves(self._specs.parameters)]
