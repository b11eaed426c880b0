"""AdamW or Muon with warm-up and cosine decay, as an optax transformation that works on shards.

Owns the schedule and which weights decay. Clipping needs the norm over the whole mesh, so it is here
as a function of that norm; `step` computes it.
"""

from operator import not_

import jax
import jax.numpy as jnp
import optax

from workloads.spec import ModelSpec, OptimizerSpec
from workloads.training.layout import KeyPath, Tree
from workloads.training.muon import is_layer_matrix, muon

FINAL_LEARNING_RATE_SHARE = 0.1
"""The cosine ends at this share of the peak learning rate."""


def build_optimizer(spec: OptimizerSpec, model: ModelSpec, steps: int) -> optax.GradientTransformation:
    """Return the optimizer without clipping. AdamW is elementwise and may run on any shard of the weights. Muon needs
    the mesh around it, see `muon`."""
    rate = learning_rate(spec, steps)
    if spec.kind == "adamw":
        return optax.adamw(rate, b1=spec.beta1, b2=spec.beta2, weight_decay=spec.weight_decay, mask=_decays)
    return optax.chain(
        optax.masked(muon(spec.momentum, model), is_layer_matrix),
        optax.masked(optax.scale_by_adam(spec.beta1, spec.beta2), _is_left_to_adamw),
        optax.add_decayed_weights(spec.weight_decay, _decays),
        optax.scale_by_learning_rate(rate),
    )


def _is_left_to_adamw(parameters: Tree) -> Tree:
    return jax.tree.map(not_, is_layer_matrix(parameters))


def learning_rate(spec: OptimizerSpec, steps: int) -> optax.Schedule:
    """By the number of updates before, of a run that ends after `steps`."""
    return optax.warmup_cosine_decay_schedule(
        init_value=0.0,
        peak_value=spec.learning_rate,
        warmup_steps=spec.warmup_steps,
        decay_steps=max(steps, spec.warmup_steps + 1),
        end_value=spec.learning_rate * FINAL_LEARNING_RATE_SHARE,
    )


def updates(state: Tree) -> int:
    """How many the optimizer's `state` has behind it; a step that was skipped is none."""
    (counter,) = (part for part in state if isinstance(part, optax.ScaleByScheduleState))
    return int(jnp.asarray(counter.count))


def clip(gradients: Tree, norm: jax.Array, limit: float) -> Tree:
    """`gradients` scaled down so that their global norm is at most `limit`."""
    factor = jnp.minimum(1.0, limit / jnp.maximum(norm, limit))
    return jax.tree.map(lambda gradient: gradient * factor, gradients)


def _decays(parameters: Tree) -> Tree:
    """Matrices decay, norm scales do not."""

    def decays(path: KeyPath, _: jax.Array) -> bool:
        return not path[-1].key.endswith("scale")

    return jax.tree_util.tree_map_with_path(decays, parameters)
