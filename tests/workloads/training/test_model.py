from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from tests.workloads.jobs import small_job
from workloads.spec import ModelSpec
from workloads.training import model
from workloads.training.mesh import AXES, build_mesh

SPEC = ModelSpec(
    vocab_size=32, embed_dim=16, mlp_dim=24, layers=3, query_heads=4, kv_heads=2, head_dim=8, tied_embedding=False
)


def plain_loss(weights: Any, tokens: jax.Array, spec: ModelSpec) -> jax.Array:
    """The same model in whole matrices, one layer and one head after the other, full logits."""
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    x = weights["embedding"][inputs]
    for layer in range(spec.layers):
        block = {name: weight[layer] for name, weight in weights["blocks"].items()}
        x = x + plain_attention(plain_norm(x, block["attention_scale"]), block, spec)
        h = plain_norm(x, block["mlp_scale"])
        x = x + (jax.nn.silu(h @ block["gate"]) * (h @ block["up"])) @ block["down"]
    table = weights["embedding" if spec.tied_embedding else "unembedding"]
    log_probabilities = jax.nn.log_softmax(plain_norm(x, weights["final_scale"]) @ table.T)
    return -jnp.sum(jnp.take_along_axis(log_probabilities, targets[..., None], axis=-1))


def plain_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    return x / jnp.sqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6) * scale[None, None]


def plain_attention(x: jax.Array, block: Any, spec: ModelSpec) -> jax.Array:
    length, half = x.shape[1], spec.head_dim // 2
    heads = jnp.split(x @ block["query_key_value"], spec.query_heads + 2 * spec.kv_heads, axis=-1)
    angles = jnp.outer(jnp.arange(length), 10_000.0 ** (-jnp.arange(half) / half))[None]

    def rotated(head: jax.Array) -> jax.Array:
        pairs = (head[..., :half] + 1j * head[..., half:]) * jnp.exp(1j * angles)
        return jnp.concatenate([pairs.real, pairs.imag], axis=-1)

    mixed: list[jax.Array] = []
    for number in range(spec.query_heads):
        group = number // (spec.query_heads // spec.kv_heads)
        query = rotated(heads[number])
        key, value = rotated(heads[spec.query_heads + group]), heads[spec.query_heads + spec.kv_heads + group]
        scores = jnp.einsum("bqh,bkh->bqk", query, key) / spec.head_dim**0.5
        scores = jnp.where(jnp.tril(jnp.ones((1, length, length), bool)), scores, -jnp.inf)
        mixed.append(jax.nn.softmax(scores) @ value)
    return jnp.concatenate(mixed, axis=-1) @ block["out"]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("logits_per_chunk", [1 << 26, 32 * 8])
def test_loss_and_gradients_on_a_mesh_equal_a_plain_model_on_one_device(
    tied: bool, logits_per_chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "LOGITS_PER_CHUNK", logits_per_chunk)
    spec = SPEC.model_copy(update={"tied_embedding": tied})
    weights = model.initial_parameters(spec, 1)
    tokens = jnp.asarray(np.random.default_rng(0).integers(0, 32, (16, 13)))
    expected, expected_gradients = jax.value_and_grad(plain_loss)(weights, tokens, spec)

    job = small_job(Path("unused"))
    splits = model.partition_specs(weights)

    def local(weights: Any, tokens: jax.Array) -> tuple[jax.Array, Any]:
        loss, gradients = jax.value_and_grad(model.local_loss)(weights, tokens, spec, jnp.dtype("float32"))
        whole = jax.tree.map(lambda leaf, split: leaf if split else jax.lax.psum(leaf, AXES), gradients, splits)
        return jax.lax.psum(loss, AXES), whole

    mesh = build_mesh(job.mesh, job.slices, jax.devices())
    sharded = jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(splits, PartitionSpec(AXES)),
        out_specs=(PartitionSpec(), splits),
        check_vma=False,
    )
    loss, gradients = jax.jit(sharded)(weights, tokens)
    assert float(loss) == pytest.approx(float(expected), rel=1e-6)
    for found, wanted in zip(jax.tree.leaves(gradients), jax.tree.leaves(expected_gradients), strict=True):
        assert np.linalg.norm(found - wanted) < 2e-6 * np.linalg.norm(wanted)
