import jax
import jax.numpy as jnp
import numpy as np
import pytest

from workloads.spec import ExpertsSpec
from workloads.training.experts import route_and_mix

SPEC = ExpertsSpec(count=4, per_token=2, balance_weight=0.5)
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
        chosen = [expert for score in scores for expert in np.argsort(-score)[: SPEC.per_token]]
        shares = np.bincount(chosen, minlength=4) / len(chosen)
        likelihood = np.mean([np.exp(score) / np.exp(score).sum() for score in scores], axis=0)
        total += len(scores) * 4 * float(shares @ likelihood)
    return SPEC.balance_weight * total


def test_the_balance_loss_is_that_of_the_positions_that_count() -> None:
    x, weights, counted = inputs()
    _, balance = route_and_mix(x, weights, SPEC, counted, jax.nn.silu)
    expected = balance_one_by_one(np.asarray(x), np.asarray(weights["router"]), np.asarray(counted))
    assert float(balance) == pytest.approx(expected, rel=1e-5)


def test_experts_that_are_as_likely_cost_one_for_each_position() -> None:
    x, weights, counted = inputs()
    _, balance = route_and_mix(x, {**weights, "router": jnp.zeros((EMBED, 4))}, SPEC, counted, jax.nn.silu)
    assert float(balance) == pytest.approx(SPEC.balance_weight * float(counted.sum()))
