"""A plain model with full matrices, one head and one expert after the other, full logits and no mesh.

It is the reference for the trainer's model and for the import of weights. Weights are nested as in the trainer. The
columns of `query_key_value` are in groups, one for each kv head: its query heads, its key, its value.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from workloads.spec import ExpertsSpec, ModelSpec, RopeScaling

type Tree = Any


def plain_logits(weights: Tree, tokens: jax.Array, spec: ModelSpec, segments: jax.Array | None = None) -> jax.Array:
    """Return logits [batch, position, vocabulary] of tokens [batch, position].

    A token attends to those before it in its own segment.
    """
    x = weights["embedding"][tokens] * (spec.embed_dim**0.5 if spec.scaled_embedding else 1)
    visible = plain_visibility(tokens, segments)
    for layer in range(spec.layers):
        block = {name: weight[layer] for name, weight in weights["blocks"].items()}
        mixed = plain_attention(plain_norm(x, block["attention_scale"], spec), block, spec, visible, layer)
        x = x + plain_output(mixed, block, "attention", spec)
        x = x + plain_output(plain_mlp(plain_norm(x, block["mlp_scale"], spec), block, spec), block, "mlp", spec)
    table = weights["embedding" if spec.tied_embedding else "unembedding"]
    return plain_cap(plain_norm(x, weights["final_scale"], spec) @ table.T, spec.logit_soft_cap)


def plain_output(x: jax.Array, block: Tree, part: str, spec: ModelSpec) -> jax.Array:
    return plain_norm(x, block[f"{part}_output_scale"], spec) if spec.output_norms else x


def plain_cap(x: jax.Array, cap: float | None) -> jax.Array:
    return x if cap is None else jnp.tanh(x / cap) * cap


def plain_is_local(layer: int, spec: ModelSpec) -> bool:
    return spec.windows is not None and spec.windows.pattern[layer % len(spec.windows.pattern)] == "local"


def plain_visibility(tokens: jax.Array, segments: jax.Array | None) -> jax.Array:
    """Return the mask [batch, query position, key position]."""
    batch, length = tokens.shape
    causal = jnp.broadcast_to(jnp.tril(jnp.ones((length, length), bool)), (batch, length, length))
    return causal if segments is None else causal & (segments[:, :, None] == segments[:, None, :])


def plain_norm(x: jax.Array, scale: jax.Array, spec: ModelSpec) -> jax.Array:
    return (
        x
        / jnp.sqrt(jnp.mean(x**2, axis=-1, keepdims=True) + spec.norm_epsilon)
        * (scale[None, None] + (1 if spec.norm_scales_from_one else 0))
    )


def plain_attention(x: jax.Array, block: Tree, spec: ModelSpec, visible: jax.Array, layer: int = 0) -> jax.Array:
    mixed: list[jax.Array] = []
    if spec.windows is not None and plain_is_local(layer, spec):
        places = jnp.arange(x.shape[1])
        distance = places[:, None] - places[None]
        visible = visible & (distance < spec.windows.size)[None]
    for group in jnp.split(x @ block["query_key_value"], spec.kv_heads, axis=-1):
        *queries, key, value = jnp.split(group, spec.queries_per_kv_head + 2, axis=-1)
        if spec.query_key_norm:
            key = plain_norm(key, block["key_scale"], spec)
            queries = [plain_norm(query, block["query_scale"], spec) for query in queries]
        key = plain_rotation(key, spec, layer)
        for query in queries:
            scores = plain_rotation(query, spec, layer) @ key.mT / (spec.score_dim or spec.head_dim) ** 0.5
            scores = plain_cap(scores, spec.attention_soft_cap)
            mixed.append(jax.nn.softmax(jnp.where(visible, scores, -jnp.inf)) @ value)
    return jnp.concatenate(mixed, axis=-1) @ block["out"]


def plain_rotation(head: jax.Array, spec: ModelSpec, layer: int = 0) -> jax.Array:
    """Apply RoPE: columns i and i + half are one complex number, rotated by its frequency times the position."""
    half = spec.head_dim // 2
    angles = jnp.outer(jnp.arange(head.shape[1]), plain_frequencies(spec, plain_is_local(layer, spec)))[None]
    turned = (head[..., :half] + 1j * head[..., half:]) * jnp.exp(1j * angles)
    return jnp.concatenate([turned.real, turned.imag], axis=-1)


def plain_frequencies(spec: ModelSpec, local: bool = False) -> jax.Array:
    """Return radians per position."""
    half = spec.head_dim // 2
    if local and spec.windows is not None:
        base = spec.rope_base if spec.windows.rope_base is None else spec.windows.rope_base
        return jnp.asarray(base ** (-np.arange(half) / half), jnp.float32)
    frequencies = spec.rope_base ** (-np.arange(half) / half)
    if spec.rope_linear_factor is not None:
        frequencies = frequencies / spec.rope_linear_factor
    if spec.rope_scaling is not None:
        frequencies = np.array([plain_stretched(frequency, spec.rope_scaling) for frequency in frequencies])
    return jnp.asarray(frequencies, jnp.float32)


def plain_stretched(frequency: float, scaling: RopeScaling) -> float:
    """Scale a frequency like `apply_scaling` in https://github.com/meta-llama/llama-models."""
    wavelength = 2 * np.pi / frequency
    if wavelength < scaling.original_length / scaling.high_frequency_factor:
        return frequency
    if wavelength > scaling.original_length / scaling.low_frequency_factor:
        return frequency / scaling.factor
    span = scaling.high_frequency_factor - scaling.low_frequency_factor
    kept = (scaling.original_length / wavelength - scaling.low_frequency_factor) / span
    return (1 - kept) * frequency / scaling.factor + kept * frequency


def plain_mlp(x: jax.Array, block: Tree, spec: ModelSpec) -> jax.Array:
    if spec.experts is None:
        return plain_expert(x, block["gate"], block["up"], block["down"], spec=spec)
    shares = plain_shares(x @ block["router"], spec.experts)
    each = [
        shares[..., expert, None]
        * plain_expert(x, *(block[name][expert] for name in ("gate", "up", "down")), spec=spec)
        for expert in range(spec.experts.count)
    ]
    return sum(each, jnp.zeros_like(x))


def plain_expert(x: jax.Array, gate: jax.Array, up: jax.Array, down: jax.Array, *, spec: ModelSpec) -> jax.Array:
    gated = x @ gate
    if spec.activation == "silu":
        return (jax.nn.silu(gated) * (x @ up)) @ down
    bent = jnp.tanh((2 / jnp.pi) ** 0.5 * (gated + 0.044715 * gated**3))
    return (0.5 * gated * (1 + bent) * (x @ up)) @ down


def plain_shares(scores: jax.Array, experts: ExpertsSpec) -> jax.Array:
    """Return the softmax [batch, position, expert] over each token's best scores, with 0 for its other experts."""
    best, chosen = jax.lax.top_k(scores, experts.per_token)
    one_hot = jax.nn.one_hot(chosen, experts.count)
    return jnp.einsum("bsc,bsce->bse", jax.nn.softmax(best), one_hot)
