"""AdamW with warm-up and cosine decay, as an optax transformation that works on shards.

Owns the schedule and which weights decay. Clipping needs the norm over the whole mesh, so it is here
as a function of that norm; `step` computes it.
"""

import jax
import jax.numpy as jnp
import optax

from workloads.spec import OptimizerSpec
from workloads.training.layout import KeyPath, Tree

FINAL_LEARNING_RATE_SHARE = 0.1
"""The cosine ends at this share of the peak learning rate."""


def build_optimizer(spec: OptimizerSpec, steps: int) -> optax.GradientTransformation:
    """AdamW without clipping, elementwise: it may run on any shard of the weights."""
    rate = learning_rate(spec, steps)
    return optax.adamw(rate, b1=spec.beta1, b2=spec.beta2, weight_decay=spec.weight_decay, mask=_decays)


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
