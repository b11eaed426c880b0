"""Computes gradients of a device's share of the global batch in parts.

Accumulation: a device computes its sequences in `training.accumulation` parts. Gradients leave the slice once, whatever
the number of parts.

Pipeline parallelism (GPipe): the parts are microbatches that pass through the stages of the mesh one after the other.
Every device runs the same program: embedding on all stages, each stage's layers, then the loss, whose positions the
last stage distributes over all stages. With M microbatches and P stages, (P - 1) / (M + P - 1) of the layers' time is
the bubble (https://arxiv.org/abs/1811.06965).

Dimensions: M microbatches, P stages, B sequences of a microbatch, S positions, D embed.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from workloads.training.layout import Tree, splits
from workloads.training.mesh import STAGE, TENSOR
from workloads.training.model import (
    PADDING,
    Forward,
    Summed,
    Tables,
    embed,
    inputs_and_targets,
    local_loss,
    positions_loss,
    run_layers,
)
from workloads.training.pointwise import Norm
from workloads.training.weights import EachLayer, EachStep, WithAdapters, gather_adapters, gather_all

type Loss = Callable[[Tree, jax.Array], tuple[jax.Array, Summed]]
"""Function from weights and tokens to the value to differentiate and the sums that it is made of."""


def summed_and_gradients(
    parameters: Tree, tokens: jax.Array, forward: Forward, dtype: jnp.dtype, stages: int, frozen: Tree | None = None
) -> tuple[Summed, Tree]:
    """Return sums over this device's rows `tokens` [B, S + 1], and gradients by `parameters`.

    They are gradients of (loss + balance) / tokens of the global batch. If there is a frozen model, `parameters` are
    the adapters of `frozen`. Gradients by matrices are summed over the mesh and split like the matrices. Gradients by
    norm scales are this device's share.
    """
    if frozen is None and forward.training.gather_weights == "each-layer":
        return _each_layer(parameters, tokens, forward, dtype)
    parts = _equal_parts(tokens, forward)
    gather_once, view = _once_a_step(forward, dtype, frozen)
    whole, pull = jax.vjp(gather_once, parameters)
    if stages > 1:
        loss = _objective(forward, view, pipelined_loss)
        (_, summed), by_whole = jax.value_and_grad(loss, has_aux=True)(whole, parts)
    else:
        summed, by_whole = _over_parts(_objective(forward, view, local_loss), whole, parts)
    (gradients,) = pull(jax.tree.map(lambda gradient, weight: gradient.astype(weight.dtype), by_whole, whole))
    return summed, gradients


def summed(
    parameters: Tree, tokens: jax.Array, forward: Forward, dtype: jnp.dtype, stages: int, frozen: Tree | None = None
) -> Summed:
    """Return sums over this device's rows `tokens` [B, S + 1], with as many rows at once as in training."""
    parts = _equal_parts(tokens, forward)
    if frozen is None and forward.training.gather_weights == "each-layer":
        weights = EachLayer(parameters, dtype, leaves_slice=False, pending=None)
    else:
        gather_once, view = _once_a_step(forward, dtype, frozen)
        weights = view(gather_once(parameters))
        if stages > 1:
            return pipelined_loss(weights, parts, forward)
    return jax.tree.map(jnp.sum, jax.lax.map(lambda part: local_loss(weights, part, forward), parts))


def _once_a_step(
    forward: Forward, dtype: jnp.dtype, frozen: Tree | None
) -> tuple[Callable[[Tree], Tree], Callable[[Tree], Any]]:
    """Return the function that gathers everything that is trained, and the one that makes the model's weights of it."""
    lora = forward.training.lora
    if frozen is None or lora is None:
        return partial(gather_all, dtype=dtype), partial(EachStep, dtype=dtype)
    if forward.training.gather_weights == "each-layer":
        weights = EachLayer(frozen, dtype, leaves_slice=False, pending=None)
    else:
        weights = EachStep(gather_all(frozen, dtype), dtype)
    return partial(gather_adapters, spec=lora, dtype=dtype), partial(WithAdapters, weights)


def _equal_parts(tokens: jax.Array, forward: Forward) -> jax.Array:
    """Return tokens [B, S + 1] as [part, row, S + 1], with the last part filled with PADDING."""
    at_once = forward.training.part_rows(tokens.shape[0])
    padding = -tokens.shape[0] % at_once
    filled = jnp.pad(tokens, ((0, padding), (0, 0)), constant_values=PADDING) if padding else tokens
    return filled.reshape(-1, at_once, tokens.shape[-1])


def _each_layer(parameters: Tree, tokens: jax.Array, forward: Forward, dtype: jnp.dtype) -> tuple[Summed, Tree]:
    """Return sums and gradients. Gradients of all parts except the last stay in the slice and are added to those of the
    last part, which may have fewer rows."""
    view = partial(EachLayer, dtype=dtype)
    at_once = forward.training.part_rows(tokens.shape[0])
    before = (tokens.shape[0] - 1) // at_once * at_once
    if not before:
        last = _objective(forward, partial(view, leaves_slice=True, pending=None), local_loss)
        (_, summed), gradients = jax.value_and_grad(last, has_aux=True)(parameters, tokens)
        return summed, gradients
    parts = tokens[:before].reshape(-1, at_once, tokens.shape[-1])
    inside = _objective(forward, partial(view, leaves_slice=False, pending=None), local_loss)
    earlier, pending = _over_parts(inside, parameters, parts)
    last = _objective(forward, partial(view, leaves_slice=True, pending=pending), local_loss)
    (_, summed), gradients = jax.value_and_grad(last, has_aux=True)(parameters, tokens[before:])
    # Gradients by matrices already include it.
    gradients = jax.tree.map(
        lambda gradient, before, split: gradient if split.is_matrix else gradient + before,
        gradients,
        pending,
        splits(parameters),
    )
    return jax.tree.map(jnp.add, earlier, summed), gradients


def _over_parts(loss: Loss, weights: Tree, parts: jax.Array) -> tuple[Summed, Tree]:
    """Return the sums of all parts, and the sums of their gradients in float32."""

    def part(carry: tuple[Summed, Tree], tokens: jax.Array) -> tuple[tuple[Summed, Tree], None]:
        (_, summed), gradients = jax.value_and_grad(loss, has_aux=True)(weights, tokens)
        return jax.tree.map(jnp.add, carry, (summed, gradients)), None

    zeros = jax.tree.map(lambda weight: jnp.zeros(weight.shape, jnp.float32), weights)
    start = (Summed(*(jnp.float32(0) for _ in Summed._fields)), zeros)
    return jax.lax.scan(part, start, parts)[0]


def _objective(
    forward: Forward, view: Callable[[Tree], Any], model: Callable[[Any, jax.Array, Forward], Summed]
) -> Loss:
    tokens_per_step = forward.training.global_batch * forward.training.sequence_length

    def loss(weights: Tree, tokens: jax.Array) -> tuple[jax.Array, Summed]:
        summed = model(view(weights), tokens, forward)
        return (summed.loss + summed.balance) / tokens_per_step, summed

    return loss


def pipelined_loss(weights: EachStep | WithAdapters, tokens: jax.Array, forward: Forward) -> Summed:
    """Return the sums of this device's sequences, given as microbatches of rows of S + 1 tokens [M, B, S + 1]."""
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
    """Return the output of the last stage [M, B, S, D], zero on all other stages, and this stage's balance loss."""
    stage, stages, count = jax.lax.axis_index(STAGE), jax.lax.axis_size(STAGE), entering.shape[0]
    to_next = [(one, one + 1) for one in range(stages - 1)]

    def tick(received: jax.Array, time: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        # At other times, the stage's result is not used.
        busy = (time >= stage) & (time < stage + count)
        number = jnp.clip(time - stage, 0, count - 1)
        x = jnp.where(stage == 0, entering[number], received)
        x, balance = run_layers(weights, x, inputs[number], counted[number], forward)
        return jax.lax.ppermute(x, STAGE, to_next), (x, jnp.where(busy, balance, 0))

    _, (outputs, balances) = jax.lax.scan(tick, jnp.zeros_like(entering[0]), jnp.arange(count + stages - 1))
    return jnp.where(stage == stages - 1, outputs[stages - 1 :], 0), jnp.sum(balances)
