"""The decoder-only transformer and its loss, written for one device's share of the batch.

Owns the layers, how each weight is split over the mesh, and where it is gathered. Knows the mesh only
by its axis names; batches, optimizer and compilation are elsewhere.

Every matrix is split on its first dimension over `fsdp`; norm scales are whole on every device.
Dimensions: B sequences, S tokens, D embed, N query heads, K kv heads, H head, F mlp, V vocabulary,
L layers, T tokens of all sequences.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec

from workloads.spec import ModelSpec
from workloads.training.mesh import FSDP, REPLICA

type Tree = Any
"""A nested dict of arrays, or of what stands for them: shapes, partition specs, shardings."""

type KeyPath = tuple[Any, ...]
"""Keys from the root of a Tree to a leaf."""

LOGITS_PER_CHUNK = 1 << 26
"""Largest number of logits that a device holds at once: 256 MiB in float32."""

NORM_EPSILON = 1e-6


class Block(nnx.Module):
    """One decoder layer: attention and gated MLP, each behind an RMSNorm."""

    def __init__(self, spec: ModelSpec, rngs: nnx.Rngs):
        self.spec = spec
        embed, mlp = spec.embed_dim, spec.mlp_dim
        query, key = spec.query_heads * spec.head_dim, spec.kv_heads * spec.head_dim
        self.attention_scale = nnx.Param(jnp.ones(embed))
        self.query_key_value = _weight(rngs, (embed, query + 2 * key))
        self.out = _weight(rngs, (query, embed))
        self.mlp_scale = nnx.Param(jnp.ones(embed))
        self.gate = _weight(rngs, (embed, mlp))
        self.up = _weight(rngs, (embed, mlp))
        self.down = _weight(rngs, (mlp, embed))

    def __call__(self, x: jax.Array) -> jax.Array:
        """BSD to BSD."""
        x = x + self._attention(_rms_norm(x, self.attention_scale[...]))
        return x + self._mlp(_rms_norm(x, self.mlp_scale[...]))

    def _attention(self, x: jax.Array) -> jax.Array:
        heads = (x @ self.query_key_value[...]).reshape(*x.shape[:2], -1, self.spec.head_dim)
        ends = (self.spec.query_heads, self.spec.query_heads + self.spec.kv_heads)
        query, key, value = jnp.split(heads, ends, axis=2)
        query, key = _rotate(query, self.spec.rope_base), _rotate(key, self.spec.rope_base)
        mixed = jax.nn.dot_product_attention(query, key, value, is_causal=True)
        return mixed.reshape(*x.shape[:2], -1) @ self.out[...]

    def _mlp(self, x: jax.Array) -> jax.Array:
        return (jax.nn.silu(x @ self.gate[...]) * (x @ self.up[...])) @ self.down[...]


class Decoder(nnx.Module):
    """All weights of the model; `blocks` holds every layer, stacked on a leading axis L."""

    def __init__(self, spec: ModelSpec, rngs: nnx.Rngs):
        table = (spec.vocab_size, spec.embed_dim)
        self.embedding = _weight(rngs, table, fan_in=spec.embed_dim)
        self.blocks = _stacked_blocks(spec, rngs)
        self.final_scale = nnx.Param(jnp.ones(spec.embed_dim))
        if not spec.tied_embedding:
            self.unembedding = _weight(rngs, table, fan_in=spec.embed_dim)


def initial_parameters(spec: ModelSpec, seed: int) -> Tree:
    """Freshly drawn weights, float32, whole; run it under jit with shardings to have them born split."""
    return nnx.to_pure_dict(nnx.state(Decoder(spec, nnx.Rngs(seed))))


def partition_specs(parameters: Tree) -> Tree:
    """How each weight lies on the mesh."""

    def spec(path: KeyPath, leaf: jax.Array) -> PartitionSpec:
        layers = (None,) if path[0].key == "blocks" else ()
        return PartitionSpec(*layers, FSDP) if leaf.ndim - len(layers) == 2 else PartitionSpec()

    return jax.tree_util.tree_map_with_path(spec, parameters)


def local_loss(parameters: Tree, tokens: jax.Array, spec: ModelSpec, dtype: jnp.dtype) -> jax.Array:
    """Summed cross-entropy of this device's sequences [B, S + 1], from its shards of the weights.

    Runs inside a shard_map over the whole mesh. Gradients by the matrices come out reduced over the
    mesh and split like the matrices; those by the norm scales are this device's share only.
    """
    # Cast up again so that the table's gradient adds up in float32 over lookups and logit chunks.
    tables = {name: _gather(parameters[name], dtype).astype(jnp.float32) for name in _table_names(spec)}
    x = tables["embedding"][tokens[:, :-1]].astype(dtype)
    x = _layers(parameters["blocks"], x, spec, dtype)
    x = _rms_norm(x, parameters["final_scale"])
    return _cross_entropy(x.reshape(-1, spec.embed_dim), tables[_table_names(spec)[-1]], tokens[:, 1:].reshape(-1))


def _layers(blocks: Tree, x: jax.Array, spec: ModelSpec, dtype: jnp.dtype) -> jax.Array:
    definition = nnx.graphdef(nnx.eval_shape(lambda: Block(spec, nnx.Rngs(0))))

    def layer(x: jax.Array, shards: Tree) -> tuple[jax.Array, None]:
        weights = jax.tree.map(lambda shard: _gather(shard, dtype) if shard.ndim == 2 else shard, shards)
        return nnx.merge(definition, weights)(x), None

    # Full remat: without it the gathered weights of all layers would be kept for the backward pass.
    return jax.lax.scan(jax.checkpoint(layer, prevent_cse=False), x, blocks)[0]


def _cross_entropy(x: jax.Array, table: jax.Array, targets: jax.Array) -> jax.Array:
    """Summed over T; in chunks, so that full logits never exist."""

    def chunk(total: jax.Array, part: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        x, targets = part
        logits = jnp.einsum("td,vd->tv", x, table.astype(x.dtype), preferred_element_type=jnp.float32)
        picked = jnp.take_along_axis(logits, targets[:, None], axis=1)[:, 0]
        return total + jnp.sum(jax.nn.logsumexp(logits, axis=1) - picked), None

    chunks = _chunk_count(x.shape[0], table.shape[0])
    parts = (x.reshape(chunks, -1, x.shape[1]), targets.reshape(chunks, -1))
    return jax.lax.scan(jax.checkpoint(chunk, prevent_cse=False), jnp.float32(0), parts)[0]


def _chunk_count(tokens: int, vocabulary: int) -> int:
    return next(n for n in range(1, tokens + 1) if tokens % n == 0 and tokens // n * vocabulary <= LOGITS_PER_CHUNK)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _gather(shard: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """The whole matrix in the compute type, from every device's rows of it."""
    return jax.lax.all_gather(shard.astype(dtype), FSDP, tiled=True)


def _gather_forward(shard: jax.Array, dtype: jnp.dtype) -> tuple[jax.Array, None]:
    return _gather(shard, dtype), None


def _gather_backward(dtype: jnp.dtype, _: None, gradient: jax.Array) -> tuple[jax.Array]:
    # Written on blocks of rows: the tiled form becomes a full all-reduce on TPU for some shapes.
    rows = gradient.reshape(jax.lax.axis_size(FSDP), -1, gradient.shape[1])
    within_slice = jax.lax.psum_scatter(rows, FSDP)
    return (jax.lax.psum(within_slice, REPLICA).astype(jnp.float32),)


_gather.defvjp(_gather_forward, _gather_backward)


def _rms_norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    wide = x.astype(jnp.float32)
    normed = wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + NORM_EPSILON)
    return (normed * scale[None, None]).astype(x.dtype)


def _rotate(x: jax.Array, base: float) -> jax.Array:
    """Rotary position embedding of BSNH; position is the place in the sequence."""
    half = x.shape[-1] // 2
    frequencies = base ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angles = (jnp.arange(x.shape[1], dtype=jnp.float32)[:, None] * frequencies[None])[None, :, None]
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1).astype(x.dtype)


def _weight(rngs: nnx.Rngs, shape: tuple[int, int], fan_in: int | None = None) -> nnx.Param[jax.Array]:
    deviation = (shape[0] if fan_in is None else fan_in) ** -0.5
    return nnx.Param(deviation * jax.random.truncated_normal(rngs.params(), -3, 3, shape))


def _stacked_blocks(spec: ModelSpec, rngs: nnx.Rngs) -> Block:
    @nnx.split_rngs(splits=spec.layers)
    @nnx.vmap
    def build(rngs: nnx.Rngs) -> Block:
        return Block(spec, rngs)

    return build(rngs)


def _table_names(spec: ModelSpec) -> tuple[str, ...]:
    """Input table first, output table last."""
    return ("embedding",) if spec.tied_embedding else ("embedding", "unembedding")
