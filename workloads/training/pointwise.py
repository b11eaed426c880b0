"""What models apply to each position apart: RMSNorm, the activation of an MLP, and soft caps."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Self

import jax
import jax.numpy as jnp

from workloads.spec import ModelSpec

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "silu": jax.nn.silu,
    "gelu": partial(jax.nn.gelu, approximate=True),
}
"""By their names in the specification."""


def soft_capped(x: jax.Array, cap: float) -> jax.Array:
    """Bend x so that it stays between -cap and cap."""
    return cap * jnp.tanh(x / cap)


@dataclass(frozen=True)
class Norm:
    """How a model normalises."""

    epsilon: float
    from_one: bool
    """Whether a weight is the difference of its factor from 1."""

    @classmethod
    def of(cls, model: ModelSpec) -> Self:
        return cls(model.norm_epsilon, model.norm_scales_from_one)

    def first(self, size: int) -> jax.Array:
        """Weights by which nothing changes."""
        return jnp.zeros(size) if self.from_one else jnp.ones(size)

    def __call__(self, x: jax.Array, weight: jax.Array, axis: int = -1) -> jax.Array:
        """Of x over an axis counted from the last, in float32; the weight is as long as that axis."""
        wide = x.astype(jnp.float32)
        normed = wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=axis, keepdims=True) + self.epsilon)
        factor = weight + 1 if self.from_one else weight
        others = tuple(place for place in range(x.ndim) if place != x.ndim + axis)
        return (normed * jnp.expand_dims(factor, others)).astype(x.dtype)
