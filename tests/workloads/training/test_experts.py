"""Experts: the balance loss, the backward pass, and JAX's kernels in an interpreter."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from workloads.spec import ExpertsSpec
from workloads.training.experts import mlps, route_and_mix
from workloads.training.remat import rematerialised

pytestmark = pytest.mark.costs(cpu_seconds=5)

EXPERTS = ExpertsSpec(count=4, per_token=2, balance_weight=0.5)
SEQUENCES, POSITIONS, EMBED = 2, 6, 8


def inputs() -> tuple[jax.Array, dict[str, jax.Array], jax.Array]:
    draw = np.random.default_rng(0)
    shapes = {"router": (EMBED, 4), "gate": (4, EMBED, 3), "up": (4, EMBED, 3), "down": (4, 3, EMBED)}
    weights = {name: jnp.asarray(draw.normal(size=shape), jnp.float32) for name, shape in shapes.items()}
    counted = jnp.asarray([[1, 1, 1, 0, 0, 1], [1, 0, 1, 1, 1, 1]], jnp.float32)
    return jnp.asarray(draw.normal(size=(SEQUENCES, POSITIONS, EMBED)), jnp.float32), weights, counted


def balance_one_by_one(x: np.ndarray, router: np.ndarray, counted: np.ndarray) -> float:
    total = 0.0
    for sequence, counts in zip(x, counted, strict=True):
        scores = [token @ router for token, count in zip(sequence, counts, strict=True) if count]
        chosen = [expert for score in scores for expert in np.argsort(-score)[: EXPERTS.per_token]]
        shares = np.bincount(chosen, minlength=4) / len(chosen)
        likelihood = np.mean([np.exp(score) / np.exp(score).sum() for score in scores], axis=0)
        total += len(scores) * 4 * float(shares @ likelihood)
    return EXPERTS.balance_weight * total


def test_the_balance_loss_is_that_of_the_positions_that_count() -> None:
    x, weights, counted = inputs()
    _, balance = route_and_mix(x, weights, EXPERTS, counted, jax.nn.silu, jax.lax.ragged_dot)
    expected = balance_one_by_one(np.asarray(x), np.asarray(weights["router"]), np.asarray(counted))
    assert float(balance) == pytest.approx(expected, rel=1e-5)


def test_experts_that_are_as_likely_cost_one_for_each_position() -> None:
    x, weights, counted = inputs()
    _, balance = route_and_mix(
        x, {**weights, "router": jnp.zeros((EMBED, 4))}, EXPERTS, counted, jax.nn.silu, jax.lax.ragged_dot
    )
    assert float(balance) == pytest.approx(EXPERTS.balance_weight * float(counted.sum()))


def test_the_backward_pass_does_not_compute_the_last_product_again() -> None:
    sizes, rows, shares = jnp.asarray([3, 0, 4, 1], jnp.int32), jnp.ones((8, EMBED)), jnp.ones(8)
    _, weights, _ = inputs()

    def layer(rows: jax.Array, kept: Any) -> jax.Array:
        return mlps(rows, kept[0], sizes, kept[1], jax.nn.silu, jax.lax.ragged_dot)

    def loss(rows: jax.Array, kept: Any) -> jax.Array:
        return jnp.sum(rematerialised(layer, "attention")(rows, kept) ** 2)

    computed = str(jax.make_jaxpr(jax.grad(loss, argnums=(0, 1)))(rows, (weights, shares)))
    # Three of the forward pass, two again, and two gradients of each.
    assert computed.count("ragged_dot_general[") == 3 + 2 + 6
