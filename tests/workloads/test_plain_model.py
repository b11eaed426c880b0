import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.workloads.plain_model import plain_logits
from tests.workloads.weights.hugging_face_files import EXPERTS
from workloads.training.model import initial_parameters

RANDOM = np.random.default_rng(0)
TOKENS = jnp.asarray(RANDOM.integers(0, EXPERTS.vocab_size, (2, 6)))
WEIGHTS = jax.tree.map(
    lambda leaf: jnp.asarray(RANDOM.normal(0, 0.4, leaf.shape), jnp.float32),
    jax.eval_shape(lambda: initial_parameters(EXPERTS, 0)),
)


@pytest.mark.costs(cpu_seconds=8)
def test_segments_in_one_row_are_as_good_as_rows_of_their_own() -> None:
    logits = jax.jit(lambda tokens, segments=None: plain_logits(WEIGHTS, tokens, EXPERTS, segments))
    together = logits(TOKENS.reshape(1, 12), jnp.repeat(jnp.arange(2), 6)[None])
    np.testing.assert_allclose(together.reshape(2, 6, -1), logits(TOKENS), rtol=1e-5, atol=1e-5)


@pytest.mark.costs(cpu_seconds=15)
def test_every_weight_has_a_gradient() -> None:
    gradients = jax.jit(jax.grad(lambda weights: jnp.sum(plain_logits(weights, TOKENS, EXPERTS) ** 2)))(WEIGHTS)
    assert all(bool(jnp.any(leaf != 0) & jnp.all(jnp.isfinite(leaf))) for leaf in jax.tree.leaves(gradients))
