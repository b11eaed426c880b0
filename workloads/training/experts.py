"""A mixture of experts in place of a layer's MLP: each token goes to a few of them, none is dropped.

Owns routing and the grouped matrix products. Dimensions: B sequences, S positions, D embed, E experts,
F mlp, C experts of each token, T positions of all sequences.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from workloads.spec import ExpertsSpec
from workloads.training.adapters import product
from workloads.training.layout import Tree
from workloads.training.remat import PRODUCT, PROJECTION, named


def route_and_mix(
    x: jax.Array, weights: Tree, spec: ExpertsSpec, counted: jax.Array, activate: Callable[[jax.Array], jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """x [B, S, D] to [B, S, D], and the balance loss summed over the positions that `counted` [B, S] weighs.

    Weights: router [D, E], gate and up [E, D, F], down [E, F, D].
    """
    scores = jnp.einsum("bsd,de->bse", x, weights["router"], preferred_element_type=jnp.float32)
    chosen_scores, chosen = jax.lax.top_k(scores, spec.per_token)
    shares = jax.nn.softmax(chosen_scores, axis=-1)
    tokens = x.reshape(-1, x.shape[-1])
    expert = chosen.reshape(-1)
    by_expert = jnp.argsort(expert, stable=True)
    sizes = jnp.bincount(expert, length=spec.count).astype(jnp.int32)
    inputs = tokens[by_expert // spec.per_token]

    def grouped(x: jax.Array, matrices: jax.Array) -> jax.Array:
        return jax.lax.ragged_dot(x, matrices, sizes)

    gate, up = (named(product(inputs, weights[name], grouped, grouped), PROJECTION) for name in ("gate", "up"))
    gated = named(activate(gate) * up, PRODUCT)
    outputs = product(gated, weights["down"], grouped, grouped)
    weighted = outputs * shares.reshape(-1)[by_expert][:, None].astype(outputs.dtype)
    mixed = jnp.zeros_like(tokens).at[by_expert // spec.per_token].add(weighted)
    return mixed.reshape(x.shape), spec.balance_weight * _balance(scores, chosen, counted)


def _balance(scores: jax.Array, chosen: jax.Array, counted: jax.Array) -> jax.Array:
    """Summed over sequences: positions that count x E x (their shares of the choices . mean probabilities), which is 1
    per position when even."""
    experts = scores.shape[-1]
    positions = jnp.sum(counted, axis=1)
    weights = (counted / jnp.maximum(positions, 1)[:, None])[..., None]
    picks = jnp.sum(jnp.mean(jax.nn.one_hot(chosen, experts), axis=2) * weights, axis=1)
    probabilities = jnp.sum(jax.nn.softmax(scores, axis=-1) * weights, axis=1)
    return jnp.sum(positions * experts * jnp.sum(picks * probabilities, axis=-1))
