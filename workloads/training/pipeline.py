"""Pipeline parallelism: microbatches pass through the stages of the mesh one behind the other (GPipe).

Owns the schedule. Every device runs the same program: embedding on all stages, each stage's layers, then the
loss, for which the last stage deals its positions out over all stages. With M microbatches and P stages,
(P - 1) / (M + P - 1) of the layers' time is the bubble (https://arxiv.org/abs/1811.06965).

Dimensions: M microbatches, P stages, B sequences of a microbatch, S positions, D embed.
"""

import jax
import jax.numpy as jnp

from workloads.training.mesh import STAGE, TENSOR
from workloads.training.model import (
    Forward,
    Summed,
    Tables,
    embed,
    inputs_and_targets,
    positions_loss,
    run_layers,
)
from workloads.training.pointwise import Norm
from workloads.training.weights import EachStep, WithAdapters


def pipelined_loss(weights: EachStep | WithAdapters, tokens: jax.Array, forward: Forward) -> Summed:
    """Of this device's sequences, as microbatches of rows of S + 1 tokens [M, B, S + 1]."""
    inputs, targets, counted = inputs_and_targets(tokens, forward)
    tables = Tables.of(weights, forward.model)
    entering = embed(tables, inputs, forward.model)
    leaving, balance = _through_stages(weights.in_float32, entering, inputs, counted, forward)
    dealt = jax.lax.psum_scatter(leaving, STAGE, scatter_dimension=2, tiled=True)
    x = Norm.of(forward.model)(dealt, weights.small("final_scale"))
    loss, z_loss, count = positions_loss(tables, x, targets, counted, (TENSOR, STAGE), forward)
    return Summed(loss, z_loss, balance, count)


def _through_stages(
    weights: EachStep | WithAdapters, entering: jax.Array, inputs: jax.Array, counted: jax.Array, forward: Forward
) -> tuple[jax.Array, jax.Array]:
    """What leaves the last stage [M, B, S, D], zero on all others, and this stage's balance loss."""
    stage, stages, count = jax.lax.axis_index(STAGE), jax.lax.axis_size(STAGE), entering.shape[0]
    to_next = [(one, one + 1) for one in range(stages - 1)]

    def tick(received: jax.Array, time: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        # At other times the stage computes on what nobody will look at.
        busy = (time >= stage) & (time < stage + count)
        number = jnp.clip(time - stage, 0, count - 1)
        x = jnp.where(stage == 0, entering[number], received)
        x, balance = run_layers(weights, x, inputs[number], counted[number], forward)
        return jax.lax.ppermute(x, STAGE, to_next), (x, jnp.where(busy, balance, 0))

    _, (outputs, balances) = jax.lax.scan(tick, jnp.zeros_like(entering[0]), jnp.arange(count + stages - 1))
    return jnp.where(stage == stages - 1, outputs[stages - 1 :], 0), jnp.sum(balances)
