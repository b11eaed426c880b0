"""Functions on a CPU in place of attention kernels, right and wrong ones."""

import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from workloads.spec import ModelSpec
from workloads.training.attention import Heads, Sequence, mix_plainly
from workloads.training.attention_trial import AttentionPart

MODEL = ModelSpec(vocab_size=8, embed_dim=16, mlp_dim=16, layers=1, query_heads=4, kv_heads=2, head_dim=16)
PART = AttentionPart(MODEL, kv_heads=2, sequences=2, positions=128, dtype="bfloat16", segmented=True)


def right(projected: jax.Array, sequence: Sequence) -> jax.Array:
    by_heads = projected.reshape(projected.shape[0], -1, PART.rows, MODEL.head_dim, projected.shape[-1])
    return mix_plainly(jnp.swapaxes(by_heads, -1, -2), Heads.of(MODEL, "reference"), sequence)


def slow(projected: jax.Array, sequence: Sequence) -> jax.Array:
    def wait(value: np.ndarray) -> np.ndarray:
        time.sleep(0.3)
        return value

    zero = jax.pure_callback(wait, jax.ShapeDtypeStruct((), projected.dtype), jnp.zeros((), projected.dtype))
    return right(projected, sequence) + jax.lax.stop_gradient(zero)


def wrong_at_the_last_position(projected: jax.Array, sequence: Sequence) -> jax.Array:
    return right(projected, sequence).at[..., -1, :].set(0)


def wrong_gradient(projected: jax.Array, sequence: Sequence) -> jax.Array:
    mixed = right(projected, sequence)
    return 2 * mixed - jax.lax.stop_gradient(mixed)


def across_documents(projected: jax.Array, sequence: Sequence) -> jax.Array:
    return right(projected, replace(sequence, segments=None))


def not_finite(projected: jax.Array, sequence: Sequence) -> jax.Array:
    return right(projected, sequence) * jnp.nan


def refused(projected: jax.Array, sequence: Sequence) -> jax.Array:
    raise NotImplementedError("Mosaic cannot lower this\nstack of the compiler")
