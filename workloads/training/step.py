"""Compiles the training step and the evaluation step over the whole mesh.

It has the training state, its shardings, and a fully manual shard_map around forward, backward and update. Every
collective of a step is in the sources; none is left to the partitioner.
"""

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from workloads.data.token_folder import token_type
from workloads.spec import JobSpec
from workloads.training.adapters import initial_adapters
from workloads.training.attention import Heads
from workloads.training.experts import grouped_products
from workloads.training.fingerprint import Fingerprints, Take, compile_fingerprints
from workloads.training.gradients import summed, summed_and_gradients
from workloads.training.layout import Split, Tree, partition_specs, splits
from workloads.training.mesh import AXES, DATA_AXES
from workloads.training.model import PADDING, Forward, Summed, initial_parameters
from workloads.training.optimizer import build_optimizer, clip, global_norm, state_specs

BATCH = PartitionSpec(DATA_AXES)
"""Partition of a batch: sequences are distributed over replicas and their fsdp shards."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """Everything that a checkpoint needs for a bitwise equal continuation."""

    step: Tree
    batch: Tree
    """Number of the next batch. Those before it were used, or left out by a rollback."""
    parameters: Tree
    """The model's weights, or the adapters of a job with `training.lora`."""
    optimizer: Tree


def at_batch(state: TrainState, number: int) -> TrainState:
    """Return `state` with `number` as its next batch."""
    value = np.asarray(number, state.batch.dtype)
    return replace(state, batch=jax.make_array_from_callback((), state.batch.sharding, lambda _: value))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DeviceState(TrainState):
    """Everything that the devices hold between two steps of a job with `training.lora`."""

    frozen: Tree
    """The model's frozen weights, with matrices in the compute type."""


def _device_state(state: TrainState, frozen: Tree | None) -> TrainState:
    return state if frozen is None else DeviceState(**vars(state), frozen=frozen)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StepResult:
    """Results of a step: means over all tokens of the global batch, and the gradient's global norm before clipping."""

    loss: jax.Array
    """Mean cross-entropy."""
    z_loss: jax.Array
    gradient_norm: jax.Array
    skipped: jax.Array
    """Whether the step was skipped because loss or norm is not finite, or the norm is above `optimizer.skip_norm`. A
    skipped step changes neither weights nor optimizer."""


class Program:
    """The functions of one job on one mesh. Nothing is compiled before a call of `compile_*`."""

    def __init__(self, spec: JobSpec, mesh: Mesh):
        self._spec = spec
        self._mesh = mesh
        self.compiler_options = compiler_options(spec, mesh)
        self._dtype = jnp.dtype(spec.training.compute_dtype)
        self._stages = spec.mesh.stage
        self._forward = _forward(spec, _on_tpu(mesh))
        self._optimizer = build_optimizer(spec.optimizer, spec.model, spec.training.steps)
        self._model_shapes = jax.eval_shape(lambda: initial_parameters(spec.model, spec.training.seed))
        shapes = jax.eval_shape(self._initial)
        parameters = partition_specs(shapes.parameters)
        moments = state_specs(self._optimizer, shapes.optimizer, parameters)
        specs = TrainState(PartitionSpec(), PartitionSpec(), parameters, moments)
        self._splits: list[Split] = jax.tree.leaves(splits(shapes.parameters))
        self.batch_sharding = NamedSharding(mesh, BATCH)
        rows = spec.training.batch_rows(spec.mesh.data_shards)
        self.batch_shape = (rows, spec.training.sequence_length + 1)
        self.state_shapes: TrainState = jax.tree.map(
            lambda leaf, split: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, split)),
            shapes,
            specs,
        )
        self.frozen_shapes: Tree | None = self._shapes_of_frozen() if spec.training.lora else None
        """Shapes of the third argument of step and evaluation. `None` if they have only two."""

    @property
    def device_state_shapes(self) -> TrainState:
        """Shapes of everything that the devices hold between two steps."""
        return _device_state(self.state_shapes, self.frozen_shapes)

    def compile_initial(self) -> jax.stages.Compiled:
        """Compile () -> TrainState, which draws the weights from the job's seed, already split."""
        shardings = jax.tree.map(lambda leaf: leaf.sharding, self.state_shapes)
        # It runs only once. On a CPU, less optimisation saves 0.6 s of compilation, but none costs 0.6 s when it runs.
        return jax.jit(self._initial, out_shardings=shardings).lower().compile({"xla_backend_optimization_level": 1})

    def compile_step(self, **more: Any) -> jax.stages.Compiled:
        """Compile (TrainState, tokens[, frozen weights]) -> (TrainState, StepResult). The state's memory is reused.

        `more` are further options of the compiler.
        """
        return self.lower_step().compile(self.compiler_options | more)

    def lower_step(self) -> jax.stages.Lowered:
        arguments = (self.state_shapes, self.batch, *self._frozen)
        step = self._over_mesh(self.local_step, arguments, (_specs(self.state_shapes), PartitionSpec()))
        return jax.jit(step, donate_argnums=0).lower(*arguments)

    def compile_evaluation(self) -> jax.stages.Compiled:
        """Compile (parameters, tokens[, frozen weights]) -> (summed loss, tokens that count)."""
        arguments = (self.state_shapes.parameters, self.batch, *self._frozen)
        evaluate = self._over_mesh(self._local_evaluation, arguments, PartitionSpec())
        return jax.jit(evaluate).lower(*arguments).compile(self.compiler_options)

    @property
    def choices(self) -> dict[str, str]:
        """Kernels and types that the step really uses on these devices."""
        experts = {"expert_products": self._spec.training.expert_products} if self._spec.model.experts else {}
        return {"attention": self._forward.heads.kernel, **experts, "compute_dtype": self._dtype.name}

    @property
    def batch(self) -> jax.ShapeDtypeStruct:
        dtype = token_type(self._spec.model.vocab_size, self._spec.training.reads_marks)
        return jax.ShapeDtypeStruct(self.batch_shape, dtype, sharding=self.batch_sharding)

    def _over_mesh(self, local: Callable[..., Tree], arguments: Tree, out_specs: Tree) -> Callable[..., Tree]:
        in_specs = _specs(arguments)
        return jax.shard_map(local, mesh=self._mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)

    def _initial(self) -> TrainState:
        lora, seed = self._spec.training.lora, self._spec.training.seed
        if lora:
            parameters = initial_adapters(self._model_shapes, lora, seed)
        else:
            parameters = initial_parameters(self._spec.model, seed)
        return TrainState(jnp.int32(0), jnp.int32(0), parameters, self._optimizer.init(parameters))

    def _shapes_of_frozen(self) -> Tree:
        def shape(leaf: jax.ShapeDtypeStruct, split: Split) -> jax.ShapeDtypeStruct:
            dtype = self._dtype if split.is_matrix else leaf.dtype
            return jax.ShapeDtypeStruct(leaf.shape, dtype, sharding=NamedSharding(self._mesh, split.spec))

        return jax.tree.map(shape, self._model_shapes, splits(self._model_shapes))

    @property
    def _frozen(self) -> tuple[Tree, ...]:
        return () if self.frozen_shapes is None else (self.frozen_shapes,)

    def _local_evaluation(
        self, parameters: Tree, tokens: jax.Array, frozen: Tree | None = None
    ) -> tuple[jax.Array, jax.Array]:
        own = summed(parameters, self._marked(tokens), self._forward, self._dtype, self._stages, frozen)
        total = jax.lax.psum(own, AXES)
        return total.cross_entropy, total.counted

    def local_step(
        self, state: TrainState, tokens: jax.Array, frozen: Tree | None = None
    ) -> tuple[TrainState, StepResult]:
        own, gradients = summed_and_gradients(
            state.parameters, self._marked(tokens), self._forward, self._dtype, self._stages, frozen
        )
        total, gradients = self._reduced(own, gradients)
        norm = global_norm(gradients)
        clipped = clip(gradients, norm, self._spec.optimizer.clip_norm)
        updates, optimizer = self._optimizer.update(clipped, state.optimizer, state.parameters)
        parameters = optax.apply_updates(state.parameters, updates)
        loss, z_loss = total.cross_entropy / total.counted, total.z_loss / total.counted
        keeps = jnp.isfinite(loss) & jnp.isfinite(norm)
        if self._spec.optimizer.skip_norm is not None:
            keeps &= norm <= self._spec.optimizer.skip_norm
        parameters, optimizer = jax.tree.map(
            lambda new, old: jnp.where(keeps, new, old), (parameters, optimizer), (state.parameters, state.optimizer)
        )
        after = TrainState(state.step + 1, state.batch + 1, parameters, optimizer)
        return after, StepResult(loss, z_loss, norm, ~keeps)

    def _marked(self, tokens: jax.Array) -> jax.Array:
        """Return this device's rows [B, S + 1] as int32, with PADDING in those after the global batch."""
        tokens = tokens.astype(jnp.int32)
        if not self._forward.padded:
            return tokens
        rows = tokens.shape[0]
        numbers = jax.lax.axis_index(DATA_AXES) * rows + jnp.arange(rows)
        return jnp.where((numbers < self._spec.training.global_batch)[:, None], tokens, PADDING)

    def _reduced(self, own: Summed, gradients: Tree) -> tuple[Summed, Tree]:
        """Sum over the mesh what is not yet summed: the sums and the gradients of small weights.

        The returned gradients are those of the mean over the positions that count.
        """
        leaves, structure = jax.tree.flatten(gradients)
        small = [index for index, split in enumerate(self._splits) if not split.is_matrix]
        by_axes = {self._splits[index].repeated_over for index in small}
        total = jax.lax.psum(own, AXES)
        for axes in sorted(by_axes):
            group = [index for index in small if self._splits[index].repeated_over == axes]
            for index, leaf in zip(group, jax.lax.psum([leaves[index] for index in group], axes), strict=True):
                leaves[index] = leaf
        if not self._spec.training.counts_all:
            tokens_per_step = self._spec.training.global_batch * self._spec.training.sequence_length
            leaves = [leaf * (tokens_per_step / total.counted) for leaf in leaves]
        return total, jax.tree.unflatten(structure, leaves)


class CompiledProgram:
    """The compiled functions of a program. The step compiles in the background at once, the others on their first
    call."""

    def __init__(self, functions: Program, compiler: Executor):
        self.functions = functions
        self.frozen: Tree | None = None
        """Weights that are not trained. If the program has `frozen_shapes`, they must be set before any call."""
        self._compiler = compiler
        self._step = compiler.submit(self._timed_step)

    def _timed_step(self) -> tuple[jax.stages.Compiled, float]:
        began = time.monotonic()
        return self.functions.compile_step(), time.monotonic() - began

    def prepare(self) -> float:
        """Wait until the step is compiled, and return the seconds that it took."""
        return self._step.result()[1]

    def initial(self) -> TrainState:
        """Return a new state from the job's seed. It is compiled here, because a resumed run does not need it."""
        return self.functions.compile_initial()()

    def step(self, state: TrainState, batch: jax.Array) -> tuple[TrainState, StepResult]:
        """Run one optimizer step. `state` is donated."""
        return self._step.result()[0](state, batch, *self._frozen_weights)

    def fingerprints(self, state: TrainState) -> list[Fingerprints]:
        """Return the fingerprints of `state` and the frozen weights for each replica."""
        return self.prepare_fingerprints().result()(_device_state(state, self.frozen))

    def prepare_fingerprints(self) -> Future[Take]:
        """Return the function that takes fingerprints. The first call begins to compile it in the background."""
        return self._fingerprints

    def evaluate(self, parameters: Tree, batch: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the summed loss of one batch, and its number of tokens."""
        return self._evaluation(parameters, batch, *self._frozen_weights)

    @property
    def _frozen_weights(self) -> tuple[Tree, ...]:
        return () if self.frozen is None else (self.frozen,)

    @cached_property
    def _fingerprints(self) -> Future[Take]:
        return self._compiler.submit(compile_fingerprints, self.functions.device_state_shapes)

    @cached_property
    def _evaluation(self) -> jax.stages.Compiled:
        return self.functions.compile_evaluation()


def compiler_options(spec: JobSpec, mesh: Mesh) -> dict[str, Any]:
    """Return the options that the job's programs are compiled with. The CPU compiler gets none of those for TPUs."""
    return dict(spec.compiler_options) if _on_tpu(mesh) else {}


def _on_tpu(mesh: Mesh) -> bool:
    return mesh.devices.flat[0].platform == "tpu"


def _specs(shapes: Tree) -> Tree:
    return jax.tree.map(lambda leaf: leaf.sharding.spec, shapes)


def _forward(spec: JobSpec, on_tpu: bool) -> Forward:
    kernel = spec.training.attention if on_tpu else "reference"
    heads = Heads.of(spec.model, kernel)
    grouped = grouped_products(spec.training, spec.vmem_kib if on_tpu else None)
    even = spec.training.global_batch % (spec.mesh.data_shards * spec.training.accumulation) == 0
    return Forward(spec.model, spec.training, heads, grouped, on_tpu, padded=not even)
