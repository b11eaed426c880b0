"""The kernels of `training.attention` as the model calls them, in interpret mode, against plain attention."""

from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash_kernel

from workloads.spec import Attention, ModelSpec
from workloads.training import tpu_attention
from workloads.training.attention import HeadNorms, Heads, Sequence, attend
from workloads.training.failures import InvalidSpec
from workloads.training.pointwise import Norm, rotation
from workloads.training.remat import rematerialised

pytestmark = pytest.mark.costs(cpu_seconds=15)

MODEL = ModelSpec(vocab_size=8, embed_dim=16, mlp_dim=16, layers=1, query_heads=4, kv_heads=2, head_dim=64)
HEADS = Heads(MODEL.queries_per_kv_head, MODEL.head_dim, "reference")


def arguments(positions: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return input and both projections in float32."""
    draw = np.random.default_rng(0)
    mixed = MODEL.query_heads * MODEL.head_dim
    shapes = ((2, positions, 16), (16, mixed + 2 * MODEL.kv_heads * MODEL.head_dim), (mixed, 16))
    x, query_key_value, out = (jnp.asarray(draw.normal(size=shape), jnp.float32) for shape in shapes)
    return x, query_key_value / 4, out / 16


@dataclass(frozen=True)
class Case:
    """What attention computes on two sequences."""

    heads: dict[str, Any] = field(default_factory=dict[str, Any])
    normed: bool = False
    positions: int = 384
    document: int = 250
    """Positions of a document."""
    splash_block: int = 128


CASES = {
    "documents": Case(positions=256, document=100, splash_block=1024),
    "norms": Case({"score_dim": 40}, normed=True),
    "all": Case({"score_dim": 40, "soft_cap": 1.5, "window": 100}, normed=True),
}


@pytest.mark.parametrize(
    ("kernel", "case"),
    [("splash", "documents"), ("splash", "all"), ("fused", "documents"), ("fused", "norms")],
)
def test_a_kernel_computes_what_plain_attention_does(
    kernel: Attention, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = CASES[case]
    # Its backward pass runs only in its own interpret mode.
    make = splash_kernel.make_splash_mqa_single_device
    monkeypatch.setattr(splash_kernel, "make_splash_mqa_single_device", partial(make, interpret=True))
    monkeypatch.setitem(tpu_attention.SPLASH_BLOCKS, "splash", computed.splash_block)
    draw, positions = np.random.default_rng(1), jnp.arange(computed.positions)
    segments = jnp.broadcast_to(positions // computed.document, (2, len(positions)))
    sequence = Sequence(rotation(MODEL, computed.positions), segments)
    weights = [jnp.asarray(draw.normal(1, 0.3, MODEL.head_dim), jnp.float32) for _ in range(2)]

    def both(kernel: Attention) -> tuple[jax.Array, tuple[Any, ...]]:
        heads = replace(HEADS, kernel=kernel, **computed.heads)

        def attended(x: jax.Array, qkv: jax.Array, out: jax.Array, weights: list[jax.Array]) -> jax.Array:
            norms = HeadNorms(Norm(1e-6, False), *weights) if computed.normed else None
            return attend(x, qkv, out, heads, sequence, norms)

        made, pull_back = jax.vjp(attended, *arguments(computed.positions), weights)
        return made, pull_back(jnp.cos(made))

    expected = both("reference")
    with nullcontext() if kernel == "splash" else pltpu.force_tpu_interpret_mode():
        got = both(kernel)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3), got, expected)


@pytest.mark.parametrize("kernel", ["splash", "fused"])
def test_a_kernel_takes_every_length_of_whole_registers_and_no_other(kernel: Attention) -> None:
    def shape(positions: int) -> tuple[int, ...]:
        sequence = Sequence(rotation(MODEL, positions), None)
        heads = replace(HEADS, kernel=kernel)
        x, query_key_value, out = arguments(positions)
        return jax.eval_shape(lambda: attend(x, query_key_value, out, heads, sequence)).shape

    assert [shape(positions)[1] for positions in (128, 384, 1152, 1536)] == [128, 384, 1152, 1536]
    with pytest.raises(InvalidSpec, match="100|multiple"):
        shape(100)


@pytest.mark.parametrize("kernel", ["splash", "fused"])
def test_what_a_kernel_leaves_for_the_backward_pass_is_not_rounded_to_the_type_that_it_has(kernel: Attention) -> None:
    sequence = Sequence(rotation(MODEL, 128), None)
    heads = replace(HEADS, kernel=kernel)
    layer = rematerialised(lambda x, qkv, out: jnp.sum(x + attend(jnp.sin(x), qkv, out, heads, sequence)), "attention")
    program = str(jax.make_jaxpr(jax.grad(layer, argnums=(0, 1, 2)))(*arguments(128)))
    assert program.count("name=attention") == 2, "output and its logarithm of sums are kept"
    assert "reduce_precision" not in program
