"""The loss over the vocabulary on one device."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from workloads.training.tables import LossHead, summed_loss
from workloads.training.weights import Table


def test_no_loss_is_negative_for_a_rounding_of_the_target_s_logit_that_its_normaliser_does_not_have() -> None:
    draw = np.random.default_rng(0)
    table = jnp.asarray(draw.normal(size=(256, 64)), jnp.bfloat16)
    # The text is memorised: each position is near its target's row, whose logit, about 64, is far above the others.
    targets = jnp.arange(256)
    x = table + jnp.asarray(draw.normal(size=table.shape) / 16, jnp.bfloat16)

    def loss(x: jax.Array, target: jax.Array) -> jax.Array:
        rows = Table(table, table, lambda gradient: gradient)
        return summed_loss(x[None], rows, target[None], jnp.ones(1), LossHead(None, z_loss=0, on_tpu=False))[0]

    each = jax.vmap(loss)(x, targets)
    with_gradients, _ = jax.vmap(jax.value_and_grad(loss))(x, targets)
    # The sum of exponentials is rounded to float32.
    assert float(each.min()) > -1e-5
    assert float(with_gradients.min()) > -1e-5
    assert float(each.max()) == pytest.approx(0, abs=1e-4)
