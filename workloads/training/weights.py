"""Gathers the weights of a slice and reduces their gradients, in one of two ways with the same interface:

    EachLayer  before each layer, and again in the backward pass (ZeRO-3); a layer's gradient is scattered over
               the slice and summed over slices while the backward pass continues with the layer before
    EachStep   once a step (ZeRO-1)

WithAdapters adds the adapters of a frozen model to either of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

import jax
import jax.numpy as jnp

from workloads.spec import LoraSpec
from workloads.training.adapters import adapted, scaled
from workloads.training.collectives import gather, reduce_scatter, summed_gradient
from workloads.training.layout import BLOCKS, Split, Tree, splits

type Reduce = Callable[[jax.Array], jax.Array]


@dataclass(frozen=True)
class Table:
    """An embedding table [V, D]."""

    whole: jax.Array
    """Full table in the compute type. Gradients are not taken by it."""
    kept: jax.Array
    """Table that gradients are taken by: this device's rows, or all rows."""
    reduce: Reduce | None
    """Reduces the full float32 gradient of this device's positions to the gradient by `kept`. `None` if the table is
    frozen."""


@dataclass(frozen=True)
class EachLayer:
    """Shards of weights that are gathered where they are used."""

    parameters: Tree
    dtype: jnp.dtype
    leaves_slice: bool
    """Whether the gradients are summed over slices, which is only done for the last part of the batch."""
    pending: Tree | None
    """Gradients of the earlier parts, which are added before the sum over slices."""
    _splits: Tree = field(init=False)

    def __post_init__(self):
        object.__setattr__(self, "_splits", splits(self.parameters))

    @property
    def layers(self) -> Tree:
        """Tree that a scan over the layers runs over."""
        return self.parameters[BLOCKS], None if self.pending is None else self.pending[BLOCKS]

    def layer(self, one: Tree) -> Tree:
        """Return the full weights of one layer in the compute type, from its part of `layers`."""
        shards, pending = one
        if pending is None:
            return jax.tree.map(lambda shard, split: self._whole(shard, None, split), shards, self._splits[BLOCKS])
        return jax.tree.map(self._whole, shards, pending, self._splits[BLOCKS])

    def small(self, name: str) -> jax.Array:
        """Return a weight that is not split over devices."""
        return self.parameters[name]

    def table(self, name: str) -> Table:
        split: Split = self._splits[name]
        shard = self._summed(self.parameters[name], None if self.pending is None else self.pending[name], split)
        reduce = partial(_reduced, dtype=self.dtype, axes=split.gathered_over)
        return Table(gather(shard, split.gathered_over, split.gathered_dimension, self.dtype), shard, reduce)

    def whole(self, name: str) -> jax.Array:
        """Return a full weight outside of the layers."""
        return self._whole(self.parameters[name], None, self._splits[name])

    def _whole(self, shard: jax.Array, pending: jax.Array | None, split: Split) -> jax.Array:
        if not split.is_matrix:
            return shard
        summed = self._summed(shard, pending, split)
        return gather(summed, split.gathered_over, split.gathered_dimension, self.dtype)

    def _summed(self, shard: jax.Array, pending: jax.Array | None, split: Split) -> jax.Array:
        return summed_gradient(shard, pending, split.repeated_over, self.dtype) if self.leaves_slice else shard


@dataclass(frozen=True)
class EachStep:
    """Full weights, gathered by `gather_all` before the first part of the batch."""

    parameters: Tree
    dtype: jnp.dtype

    @property
    def layers(self) -> Tree:
        return self.parameters[BLOCKS]

    def layer(self, one: Tree) -> Tree:
        return jax.tree.map(lambda weight: weight.astype(self.dtype) if weight.ndim > 1 else weight, one)

    def small(self, name: str) -> jax.Array:
        return self.parameters[name]

    def table(self, name: str) -> Table:
        weight = self.parameters[name]
        return Table(weight.astype(self.dtype), weight, lambda gradient: gradient.astype(weight.dtype))

    @property
    def in_float32(self) -> Self:
        """Return the weights with layers in float32, because a scan that uses them in every iteration sums their
        gradients in their own type."""
        return replace(self, parameters={**self.parameters, BLOCKS: _wide(self.layers)})


@dataclass(frozen=True)
class WithAdapters:
    """Frozen weights and the full adapters of their layers. Gradients are taken by the adapters."""

    frozen: EachLayer | EachStep
    adapters: Tree

    @property
    def layers(self) -> Tree:
        return self.frozen.layers, self.adapters[BLOCKS]

    def layer(self, one: Tree) -> Tree:
        frozen, adapters = one
        in_type = jax.tree.map(lambda adapter: adapter.astype(self.frozen.dtype), adapters)
        return adapted(self.frozen.layer(frozen), in_type)

    def small(self, name: str) -> jax.Array:
        return self.frozen.small(name)

    def table(self, name: str) -> Table:
        return replace(self.frozen.table(name), reduce=None)

    @property
    def in_float32(self) -> Self:
        """Return the weights with adapters in float32, because a scan that uses them in every iteration sums their
        gradients in their own type."""
        return replace(self, adapters=_wide(self.adapters))


type Weights = EachLayer | EachStep | WithAdapters


def gather_all(parameters: Tree, dtype: jnp.dtype) -> Tree:
    """Return all full weights of this device's stage. They are gathered layer by layer, and so are the sums of their
    gradients."""
    shards = EachLayer(parameters, dtype, leaves_slice=True, pending=None)
    blocks = jax.lax.map(lambda one: shards.layer((one, None)), parameters[BLOCKS])
    return {BLOCKS: blocks, **{name: shards.whole(name) for name in sorted(parameters.keys() - {BLOCKS})}}


def gather_adapters(shards: Tree, spec: LoraSpec, dtype: jnp.dtype) -> Tree:
    """Return all full adapters of this device's stage. They are small, so all layers are gathered at once, and the sums
    of their gradients leave the slice once a step."""

    def whole(shard: jax.Array, split: Split) -> jax.Array:
        return gather(shard, split.gathered_over, split.gathered_dimension + 1, dtype)

    parts = splits(shards)
    summed = jax.tree.map(lambda leaf, split: summed_gradient(leaf, None, split.repeated_over, dtype), shards, parts)
    return jax.tree.map(whole, scaled(summed, spec), parts)


def _wide(weights: Tree) -> Tree:
    return jax.tree.map(lambda weight: weight.astype(jnp.float32), weights)


def _reduced(gradient: jax.Array, dtype: jnp.dtype, axes: tuple[str, ...]) -> jax.Array:
    return reduce_scatter(gradient.astype(dtype), axes, 0).astype(jnp.float32)
