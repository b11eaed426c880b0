"""Rotary position embedding on halves: dimension i turns with dimension i + H/2, as in Llama.

Dimensions: S positions, H head.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from workloads.spec import ModelSpec, Reach, RopeScaling


class Rotation(NamedTuple):
    """Cosine and sine of each position's angles, float32 [H / 2, S]."""

    cos: jax.Array
    sin: jax.Array


def rotation(spec: ModelSpec, positions: int, reach: Reach = "global") -> Rotation:
    """Of the places 0 to `positions` - 1 of a row, in a layer of this reach."""
    angles = frequencies(spec, reach)[:, None] * jnp.arange(positions, dtype=jnp.float32)[None]
    return Rotation(jnp.cos(angles), jnp.sin(angles))


def frequencies(spec: ModelSpec, reach: Reach = "global") -> np.ndarray:
    """Radians per position, float32 [H / 2]. Computed in float64 on the host, so that every backend has the same."""
    half = spec.head_dim // 2
    local = spec.windows if reach == "local" else None
    base = local.rope_base or spec.rope_base if local else spec.rope_base
    turns = base ** (-np.arange(half, dtype=np.float64) / half)
    if spec.rope_scaling and not local:
        turns = _stretched(turns, spec.rope_scaling)
    if spec.rope_linear_factor and not local:
        turns = turns / spec.rope_linear_factor
    return turns.astype(np.float32)


def rotate(x: jax.Array, turn: Rotation, head_axis: int) -> jax.Array:
    """`x` [..., H, S] or [..., S, H], whose `head_axis` is -2 or -1, turned by its position, in its own type."""
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=head_axis)
    if head_axis == -1:
        turn = Rotation(turn.cos.T, turn.sin.T)
    cos, sin = (jnp.expand_dims(part, tuple(range(x.ndim - 2))) for part in turn)
    turned = [first * cos - second * sin, second * cos + first * sin]
    return jnp.concatenate(turned, axis=head_axis).astype(x.dtype)


def _stretched(frequencies: np.ndarray, scaling: RopeScaling) -> np.ndarray:
    rounds = scaling.original_length * frequencies / (2 * np.pi)
    width = scaling.high_frequency_factor - scaling.low_frequency_factor
    unchanged = np.clip((rounds - scaling.low_frequency_factor) / width, 0.0, 1.0)
    return frequencies * (unchanged + (1 - unchanged) / scaling.factor)
