"""AdamW or Muon with warm-up and cosine decay, as optax transformations that work on shards.

Clipping needs the norm over the whole mesh, so it is a function of that norm; see `global_norm`.

Muon, for the matrices of the layers: an update is the momentum with all its singular values brought close to 1
(https://kellerjordan.github.io/posts/muon/, sizes of updates as in https://arxiv.org/abs/2502.16982). The Newton-Schulz
iteration needs a full matrix, but a device has only a part of each. The N devices of a slice exchange parts of N
matrices, so that each has one full matrix, and send the parts of its update back. So a device holds one matrix at a
time in addition to its parts. No matrix is computed twice in a slice, but every slice computes all of them.
"""

from collections.abc import Iterator, Mapping
from math import prod
from operator import not_
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax.sharding import PartitionSpec

from workloads.progress import SettingsChanged
from workloads.spec import ModelSpec, OptimizerSpec
from workloads.training.layout import BLOCKS, Split, Tree, splits
from workloads.training.mesh import axes_of

FINAL_LEARNING_RATE_SHARE = 0.1
"""Learning rate at the end of the cosine, as a share of its peak."""


def build_optimizer(spec: OptimizerSpec, model: ModelSpec, steps: int) -> optax.GradientTransformation:
    """Return the optimizer without clipping. AdamW is elementwise and may run on any shard of the weights. Muon needs
    the mesh; see `muon`."""
    rate = learning_rate(spec, steps)
    if spec.kind == "adamw":
        return optax.adamw(rate, b1=spec.beta1, b2=spec.beta2, weight_decay=spec.weight_decay, mask=_decays)
    return optax.chain(
        optax.masked(muon(spec.momentum, model), is_layer_matrix),
        optax.masked(
            optax.scale_by_adam(spec.beta1, spec.beta2),
            lambda parameters: jax.tree.map(not_, is_layer_matrix(parameters)),
        ),
        optax.add_decayed_weights(spec.weight_decay, _decays),
        optax.scale_by_learning_rate(rate),
    )


def learning_rate(spec: OptimizerSpec, steps: int) -> optax.Schedule:
    """Return the learning rate by the number of earlier updates, for a run that ends after `steps`."""
    return optax.warmup_cosine_decay_schedule(
        init_value=0.0,
        peak_value=spec.learning_rate,
        warmup_steps=spec.warmup_steps,
        decay_steps=max(steps, spec.warmup_steps + 1),
        end_value=spec.learning_rate * FINAL_LEARNING_RATE_SHARE,
    )


def updates(state: Tree) -> int:
    """Return the number of updates in the optimizer's `state`. Skipped steps do not count."""
    (counter,) = (part for part in state if isinstance(part, optax.ScaleByScheduleState))
    return int(jnp.asarray(counter.count))


def settings_change(
    earlier: Mapping[str, Any], now: Mapping[str, Any], step: int, state: Tree
) -> SettingsChanged | None:
    """Return the settings that differ from those of the attempt that saved the optimizer's `state` after `step`, and
    both learning rates of the next step. `None` if the length and the optimizer are the same.

    `earlier` and `now` are the manifests of that attempt and of this one.
    """
    specs = earlier["spec"], now["spec"]
    optimizers = [OptimizerSpec.model_validate(spec["optimizer"]) for spec in specs]
    lengths = [spec["training"]["steps"] for spec in specs]
    before, after = (
        {"training.steps": length, **{f"optimizer.{name}": value for name, value in optimizer}}
        for optimizer, length in zip(optimizers, lengths, strict=True)
    )
    changes = [f"{name} {before[name]} to {after[name]}" for name in after if before[name] != after[name]]
    if not changes:
        return None
    done = updates(state)
    rates = [
        float(jnp.asarray(learning_rate(optimizer, length)(done)))
        for optimizer, length in zip(optimizers, lengths, strict=True)
    ]
    return SettingsChanged(step, ", ".join(changes), *rates)


def state_specs(optimizer: optax.GradientTransformation, state: Tree, weights: Tree) -> Tree:
    """Return the PartitionSpec of each array of the optimizer's `state`. Moments are split like the weights, whose
    specs are `weights`."""
    return optax.tree.map_params(
        optimizer,
        lambda moment, split: moment if isinstance(moment, optax.MaskedNode) else split,
        state,
        weights,
        transform_non_params=lambda _: PartitionSpec(),
        is_leaf=lambda moment: isinstance(moment, optax.MaskedNode),
    )


def global_norm(gradients: Tree) -> jax.Array:
    """Return the norm of the gradients on the whole mesh. It runs inside a shard_map, on a device's parts of them."""
    by_axes: dict[tuple[str, ...], list[jax.Array]] = {}
    for gradient, split in zip(jax.tree.leaves(gradients), jax.tree.leaves(splits(gradients)), strict=True):
        by_axes.setdefault(split.axes, []).append(jnp.sum(jnp.square(gradient)))
    sums = [_psum(sum(parts, jnp.float32(0)), axes) for axes, parts in by_axes.items()]
    return jnp.sqrt(sum(sums, jnp.float32(0)))


def _psum(value: jax.Array, axes: tuple[str, ...]) -> jax.Array:
    return jax.lax.psum(value, axes) if axes else value


def clip(gradients: Tree, norm: jax.Array, limit: float) -> Tree:
    """Return `gradients` scaled down to a global norm of at most `limit`."""
    factor = jnp.minimum(1.0, limit / jnp.maximum(norm, limit))
    return jax.tree.map(lambda gradient: gradient * factor, gradients)


def _decays(parameters: Tree) -> Tree:
    """Return which weights decay: matrices, but not norm scales."""
    return jax.tree_util.tree_map_with_path(lambda path, _: not path[-1].key.endswith("scale"), parameters)


COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Coefficients a, b and c of the polynomial a X + b (X X^T) X + c (X X^T)^2 X."""

ITERATIONS = 5

UPDATE_SIZE = 0.2
"""Root mean square of an update before the learning rate. It is about that of AdamW, so that the same learning rate and
weight decay suit both: https://arxiv.org/abs/2502.16982, section 2.2."""

_MIN_NORM = 1e-7


def muon(momentum: float, model: ModelSpec) -> optax.GradientTransformation:
    """Return Nesterov momentum and orthogonalisation, without learning rate and weight decay.

    The update runs inside a shard_map over the whole mesh, on a device's parts of the weights.
    """

    def orthogonal(updates: Tree, parameters: Tree | None = None) -> Tree:
        del parameters
        return jax.tree_util.tree_map_with_path(
            lambda path, shard, split: _of_whole_matrices(shard, split, path[-1].key, model), updates, splits(updates)
        )

    return optax.chain(optax.trace(momentum, nesterov=True), optax.stateless(orthogonal))


def is_layer_matrix(parameters: Tree) -> Tree:
    """Return which weights Muon updates: the matrices of the layers, but neither tables nor norm scales."""
    return jax.tree_util.tree_map_with_path(
        lambda path, split: path[0].key == BLOCKS and split.is_matrix, splits(parameters)
    )


def orthogonalised(matrix: jax.Array) -> jax.Array:
    """Return `matrix` [rows, columns] with singular values between about 0.7 and 1.2. Zero matrices stay zero.

    TPUs multiply it in bfloat16, as the authors do.
    """
    a, b, c = COEFFICIENTS
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if is_tall else matrix
    x /= jnp.linalg.norm(x) + _MIN_NORM
    for _ in range(ITERATIONS):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if is_tall else x


def _of_whole_matrices(shard: jax.Array, split: Split, name: str, model: ModelSpec) -> jax.Array:
    """Return this device's part of the updates, from its part of stacked matrices [layers, ..., rows, columns]."""
    parts = [*_parts(split)]
    at_once = prod(jax.lax.axis_size(axes) for _, axes in parts)

    def exchanged(matrices: jax.Array) -> jax.Array:
        for dimension, axes in parts:
            matrices = jax.lax.all_to_all(matrices, axes, split_axis=0, concat_axis=dimension, tiled=True)
        updates = _update(matrices[0], name, model)[None]
        for dimension, axes in reversed(parts):
            updates = jax.lax.all_to_all(updates, axes, split_axis=dimension, concat_axis=0, tiled=True)
        return updates

    stacked = shard.reshape(-1, *shard.shape[-2:])
    count = stacked.shape[0]
    padded = jnp.pad(stacked, ((0, -count % at_once), (0, 0), (0, 0)))
    updates = jax.lax.map(exchanged, padded.reshape(-1, at_once, *shard.shape[-2:]))
    return updates.reshape(padded.shape)[:count].reshape(shard.shape)


def _parts(split: Split) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the mesh axes with several devices by which rows (1) and columns (2) of a matrix are split."""
    for dimension, part in enumerate(split.spec[-2:], 1):
        if (axes := axes_of(part)) and jax.lax.axis_size(axes) > 1:
            yield dimension, axes


def _update(matrix: jax.Array, name: str, model: ModelSpec) -> jax.Array:
    """Return the update of one full matrix. Queries, keys and values are separate matrices inside one array."""
    if name != "query_key_value":
        return _sized(matrix)
    grouped = model.queries_per_kv_head
    heads = matrix.reshape(matrix.shape[0], model.kv_heads, grouped + 2, model.head_dim)
    kinds = jnp.split(heads, [grouped, grouped + 1], axis=2)
    updates = [_sized(kind.reshape(matrix.shape[0], -1)).reshape(kind.shape) for kind in kinds]
    return jnp.concatenate(updates, axis=2).reshape(matrix.shape)


def _sized(matrix: jax.Array) -> jax.Array:
    return UPDATE_SIZE * max(matrix.shape) ** 0.5 * orthogonalised(matrix)
