"""JAX's splash attention, in interpret mode, against the reference that runs on CPU."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.workloads.plain_model import plain_attention, plain_visibility
from workloads.spec import Attention, ModelSpec
from workloads.training import tpu_attention
from workloads.training.attention import Heads, Sequence, attend
from workloads.training.rope import rotation

SPEC = ModelSpec(vocab_size=8, embed_dim=32, mlp_dim=8, layers=1, query_heads=4, kv_heads=2, head_dim=64)
POSITIONS = 256


def arrays(*shapes: tuple[int, ...]) -> list[jax.Array]:
    draw = np.random.default_rng(0)
    return [jnp.asarray(draw.normal(size=shape) * shape[-2] ** -0.5, jnp.float32) for shape in shapes]


def value_and_gradients(kernel: Attention, segments: jax.Array | None) -> list[np.ndarray]:
    heads = Heads(SPEC.queries_per_kv_head, SPEC.head_dim, kernel)
    sequence = Sequence(rotation(SPEC, POSITIONS), segments)
    x, query_key_value, out, by_mixed = arrays((2, POSITIONS, 32), (32, 8 * 64), (4 * 64, 32), (2, POSITIONS, 32))

    value, pull = jax.vjp(lambda x, inner, outer: attend(x, inner, outer, heads, sequence), x, query_key_value, out)
    return [np.asarray(array) for array in (value, *pull(by_mixed))]


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    make: Any = tpu_attention.splash_kernel.make_splash_mqa_single_device
    monkeypatch.setattr(tpu_attention.splash_kernel, "make_splash_mqa_single_device", partial(make, interpret=True))
    monkeypatch.setattr(tpu_attention, "SPLASH_BLOCK", 128)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("documents", [False, True])
def test_splash_attention_is_the_reference(documents: bool) -> None:
    lengths = jnp.array([[100], [77]])
    segments = (jnp.arange(POSITIONS)[None] // lengths).astype(jnp.int32) if documents else None
    expected, found = value_and_gradients("reference", segments), value_and_gradients("splash", segments)
    for wanted, got in zip(expected, found, strict=True):
        assert np.linalg.norm(got - wanted) < 1e-5 * np.linalg.norm(wanted)


def test_the_reference_is_the_textbook_s() -> None:
    value, *_ = value_and_gradients("reference", None)
    x, query_key_value, out = arrays((2, POSITIONS, 32), (32, 8 * 64), (4 * 64, 32))
    block = {"query_key_value": query_key_value, "out": out}
    visible = plain_visibility(jnp.zeros((2, POSITIONS), jnp.int32), None)
    expected = plain_attention(x, block, SPEC, visible)
    assert np.linalg.norm(value - expected) < 1e-6 * np.linalg.norm(expected)
