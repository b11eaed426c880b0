"""Experts in place of a layer's MLP: which ones a token goes to, and their output.

Dimensions: B sequences, S positions, D embed, F mlp, E experts, R rows: one for each token and each of its experts.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from workloads.spec import ExpertsSpec, TrainingSpec
from workloads.training.adapters import Matrix, product
from workloads.training.layout import Tree
from workloads.training.remat import PRODUCT, PROJECTION, named

type Grouped = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
"""Function that multiplies rows [R, K], sorted by their groups, by their group's matrix of [E, K, N], for sizes of the
groups [E] in int32. The result is [R, N]."""


def grouped_products(training: TrainingSpec, vmem_kib: int | None) -> Grouped:
    """Return what multiplies the experts' rows. `vmem_kib` is the memory that a kernel of a TPU may use. `None`: the
    devices are no TPUs."""
    if vmem_kib is None or training.expert_products == "ragged-dot":
        return jax.lax.ragged_dot
    # Pallas is imported late, because it takes a while and is needed only on TPUs.
    from workloads.training.megablox import Megablox

    return Megablox(vmem_kib)


def route_and_mix(
    x: jax.Array,
    weights: Tree,
    spec: ExpertsSpec,
    counted: jax.Array,
    activate: Callable[[jax.Array], jax.Array],
    grouped: Grouped,
) -> tuple[jax.Array, jax.Array]:
    """Return the experts' output [B, S, D] for x [B, S, D], and the balance loss.

    The balance loss is summed over positions with weights `counted` [B, S]. Model weights: router [D, E], gate and up
    [E, D, F], down [E, F, D].
    """
    scores = jnp.einsum("bsd,de->bse", x, weights["router"], preferred_element_type=jnp.float32)
    chosen_scores, chosen = jax.lax.top_k(scores, spec.per_token)
    shares = jax.nn.softmax(chosen_scores, axis=-1)
    tokens = x.reshape(-1, x.shape[-1])
    expert = chosen.reshape(-1)
    by_expert = jnp.argsort(expert, stable=True)
    sizes = jnp.bincount(expert, length=spec.count).astype(jnp.int32)
    token = by_expert // spec.per_token
    outputs = mlps(tokens[token], weights, sizes, shares.reshape(-1)[by_expert], activate, grouped)
    mixed = jnp.zeros_like(tokens).at[token].add(outputs)
    return mixed.reshape(x.shape), spec.balance_weight * _balance(scores, chosen, counted)


def mlps(
    rows: jax.Array,
    weights: Tree,
    sizes: jax.Array,
    shares: jax.Array,
    activate: Callable[[jax.Array], jax.Array],
    grouped: Grouped,
) -> jax.Array:
    """Return the experts' outputs for rows [R, D], which are sorted by expert, multiplied by their `shares` [R].

    The shares are applied before `down`. After it, their gradient would need its output, and the backward pass would
    compute that again.
    """

    def multiply(x: jax.Array, matrices: jax.Array) -> jax.Array:
        return grouped(x, matrices, sizes)

    def projected(x: jax.Array, matrices: Matrix) -> jax.Array:
        return product(x, matrices, multiply, multiply)

    gate, up = (named(projected(rows, weights[name]), PROJECTION) for name in ("gate", "up"))
    gated = named(activate(gate) * up, PRODUCT)
    return projected(gated * shares[:, None].astype(gated.dtype), weights["down"])


def _balance(scores: jax.Array, chosen: jax.Array, counted: jax.Array) -> jax.Array:
    """Return the balance loss, summed over sequences: positions that count x E x (the experts' shares of the choices .
    their mean probabilities). It is 1 per position if the load is even."""
    experts = scores.shape[-1]
    positions = jnp.sum(counted, axis=1)
    weights = (counted / jnp.maximum(positions, 1)[:, None])[..., None]
    picks = jnp.sum(jnp.mean(jax.nn.one_hot(chosen, experts), axis=2) * weights, axis=1)
    probabilities = jnp.sum(jax.nn.softmax(scores, axis=-1) * weights, axis=1)
    return jnp.sum(positions * experts * jnp.sum(picks * probabilities, axis=-1))
