from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from tests.workloads.jobs import small_job
from workloads.training.layout import Tree
from workloads.training.optimizer import build_optimizer, clip, updates


@pytest.mark.parametrize(("norm", "factor"), [(0.0, 1.0), (0.5, 1.0), (1.0, 1.0), (4.0, 0.25)])
def test_gradients_are_scaled_down_to_the_limit_and_never_up(norm: float, factor: float) -> None:
    assert clip({"w": jnp.float32(3)}, jnp.float32(norm), 1.0)["w"] == 3 * factor


def test_matrices_decay_and_norm_scales_do_not() -> None:
    job = small_job(Path("unused"))
    spec = job.optimizer.model_copy(update={"warmup_steps": 0})
    optimizer = build_optimizer(spec, job.model, steps=10)
    weights: Tree = {"blocks": {"gate": jnp.ones((2, 3, 4)), "mlp_scale": jnp.ones((2, 4))}}
    updates: Tree = optimizer.update(jax.tree.map(jnp.zeros_like, weights), optimizer.init(weights), weights)[0]
    assert (updates["blocks"]["gate"] < 0).all()
    assert (updates["blocks"]["mlp_scale"] == 0).all()


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_the_optimizer_counts_the_updates_that_its_schedule_goes_by(kind: str) -> None:
    job = small_job(Path("unused"))
    optimizer = build_optimizer(job.optimizer.model_copy(update={"kind": kind}), job.model, steps=10)
    weights: Tree = {"embedding": jnp.ones((2, 3))}
    state = optimizer.init(weights)
    for _ in range(3):
        state = optimizer.update(weights, state, weights)[1]
    assert updates(state) == 3
