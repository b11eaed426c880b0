"""Functions of single positions: RMSNorm, the activation of an MLP, soft caps, and rotary position embedding.

Rotary embedding rotates halves, as in Llama: dimension i is paired with dimension i + H/2, where H is the size of a
head.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from workloads.spec import ModelSpec, Reach, RopeScaling

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu": partial(jax.nn.gelu, approximate=True),
}
"""Activations by their names in the specification."""


def soft_capped(x: jax.Array, cap: float) -> jax.Array:
    """Limit x smoothly to values between -cap and cap."""
    return cap * jnp.tanh(x / cap)


@dataclass(frozen=True)
class Norm:
    """Normalisation of a model."""

    epsilon: float
    from_one: bool
    """Whether the factor is 1 + the weight."""

    @classmethod
    def of(cls, model: ModelSpec) -> Self:
        return cls(model.norm_epsilon, model.norm_scales_from_one)

    def first(self, size: int) -> jax.Array:
        """Return initial weights, whose factor is 1."""
        return jnp.zeros(size) if self.from_one else jnp.ones(size)

    def __call__(self, x: jax.Array, weight: jax.Array, axis: int = -1) -> jax.Array:
        """Normalise x in float32 over a negative axis. The weight has the length of that axis."""
        wide = x.astype(jnp.float32)
        normed = wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=axis, keepdims=True) + self.epsilon)
        factor = weight + 1 if self.from_one else weight
        others = tuple(place for place in range(x.ndim) if place != x.ndim + axis)
        return (normed * jnp.expand_dims(factor, others)).astype(x.dtype)


class Rotation(NamedTuple):
    """Cosine and sine of each position's angles, float32 [H / 2, S]."""

    cos: jax.Array
    sin: jax.Array


def rotation(spec: ModelSpec, positions: int, reach: Reach = "global") -> Rotation:
    """Return the rotation of positions 0 to `positions` - 1 of a row, in a layer of this reach."""
    angles = frequencies(spec, reach)[:, None] * jnp.arange(positions, dtype=jnp.float32)[None]
    return Rotation(jnp.cos(angles), jnp.sin(angles))


def frequencies(spec: ModelSpec, reach: Reach = "global") -> np.ndarray:
    """Return radians per position, float32 [H / 2], computed in float64 on the host to be equal on all backends."""
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
    """Rotate `x` [..., H, S] or [..., S, H], with `head_axis` -2 or -1, by its positions, in its own type."""
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
