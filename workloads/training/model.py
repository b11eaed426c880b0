"""The decoder-only transformer and its loss, written for one device's share of the batch and of the weights.

The code uses only the mesh's axis names. How weights are split is in `layout`, when they are gathered in `weights`.

Dimensions: B sequences, S positions, D embed, N query heads, K kv heads, H head, F mlp, V vocabulary, L layers,
E experts. Under tensor parallelism a device has its part of K, N and F, and between two layers its part of S.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
from flax import nnx

from workloads.spec import ModelSpec, Reach, TrainingSpec
from workloads.training.adapters import product
from workloads.training.attention import HeadNorms, Heads, attend
from workloads.training.attention import Sequence as Positions
from workloads.training.collectives import own_part
from workloads.training.experts import Grouped, route_and_mix
from workloads.training.layout import Tree
from workloads.training.mesh import TENSOR
from workloads.training.pointwise import ACTIVATIONS, Norm, rotation
from workloads.training.remat import INPUT, PRODUCT, PROJECTION, named, rematerialised
from workloads.training.tables import LossHead, look_up, summed_loss
from workloads.training.weights import Table, Weights

PADDING = -1
"""Value of every token in a padding row. Nothing is predicted there, so it may be looked up as any token."""
type Layer = Callable[[jax.Array, Tree], tuple[jax.Array, jax.Array]]
"""Function from a layer's input and its part of the weights to its output and its balance loss."""


@dataclass(frozen=True)
class Forward:
    """Settings of the forward pass."""

    model: ModelSpec
    training: TrainingSpec
    heads: Heads
    grouped: Grouped
    """What multiplies the experts' rows."""
    on_tpu: bool
    """Whether it runs on a TPU, where other forms of the same arithmetic are faster than on a CPU."""
    padded: bool
    """Whether the batch or a part of it has rows of PADDING."""


class Summed(NamedTuple):
    """Sums over this device's positions in float32."""

    loss: jax.Array
    """Cross-entropy and z-loss."""
    z_loss: jax.Array
    """Z-loss, which is included in `loss`. It has no gradient."""
    balance: jax.Array
    """Loss of the balance of experts."""
    counted: jax.Array
    """Number of positions that count."""

    @property
    def cross_entropy(self) -> jax.Array:
        return self.loss - self.z_loss


class Block(nnx.Module):
    """The weights of one decoder layer: attention and gated MLP or experts, each after an RMSNorm and, in some models,
    before another one."""

    def __init__(self, spec: ModelSpec, rngs: nnx.Rngs):
        embed, mlp, mixed = spec.embed_dim, spec.mlp_dim, spec.query_heads * spec.head_dim
        experts, norm = (spec.experts.count,) if spec.experts else (), Norm.of(spec)
        self.attention_scale = nnx.Param(norm.first(embed))
        if spec.query_key_norm:
            self.query_scale, self.key_scale = (nnx.Param(norm.first(spec.head_dim)) for _ in range(2))
        if spec.output_norms:
            self.attention_output_scale, self.mlp_output_scale = (nnx.Param(norm.first(embed)) for _ in range(2))
        self.query_key_value = _weight(rngs, (embed, mixed + 2 * spec.kv_heads * spec.head_dim))
        self.out = _weight(rngs, (mixed, embed))
        self.mlp_scale = nnx.Param(norm.first(embed))
        if spec.experts:
            self.router = _weight(rngs, (embed, spec.experts.count))
        self.gate = _weight(rngs, (*experts, embed, mlp))
        self.up = _weight(rngs, (*experts, embed, mlp))
        self.down = _weight(rngs, (*experts, mlp, embed))


class Decoder(nnx.Module):
    """All weights of the model. `blocks` has all layers, stacked on a leading axis L."""

    def __init__(self, spec: ModelSpec, rngs: nnx.Rngs):
        @nnx.split_rngs(splits=spec.layers)
        @nnx.vmap
        def stacked_blocks(rngs: nnx.Rngs) -> Block:
            return Block(spec, rngs)

        table = (spec.vocab_size, spec.embed_dim)
        self.embedding = _weight(rngs, table, fan_in=spec.embed_dim)
        self.blocks = stacked_blocks(rngs)
        self.final_scale = nnx.Param(Norm.of(spec).first(spec.embed_dim))
        if not spec.tied_embedding:
            self.unembedding = _weight(rngs, table, fan_in=spec.embed_dim)


def initial_parameters(spec: ModelSpec, seed: int) -> Tree:
    """Draw full weights in float32. To create them split, run it under jit with shardings."""
    return nnx.to_pure_dict(nnx.state(Decoder(spec, nnx.Rngs(seed))))


class Tables(NamedTuple):
    """The two tables of the model. They are the same object if the embedding is tied, so that its gradient is summed
    once."""

    first: Table
    last: Table

    @classmethod
    def of(cls, weights: Weights, spec: ModelSpec) -> Self:
        first = weights.table("embedding")
        return cls(first, first if spec.tied_embedding else weights.table("unembedding"))


def local_loss(weights: Weights, tokens: jax.Array, forward: Forward) -> Summed:
    """Return the sums of this device's sequences, given as rows of S + 1 tokens [B, S + 1].

    It runs inside a shard_map over the whole mesh. Gradients by matrices are reduced by `weights`. Gradients by norm
    scales are only this device's share.
    """
    inputs, targets, counted = inputs_and_targets(tokens, forward)
    tables = Tables.of(weights, forward.model)
    x, balance = run_layers(weights, embed(tables, inputs, forward.model), inputs, counted, forward)
    x = Norm.of(forward.model)(x, weights.small("final_scale"))
    loss, z_loss, count = positions_loss(tables, x, targets, counted, (TENSOR,), forward)
    return Summed(loss, z_loss, balance, count)


def inputs_and_targets(tokens: jax.Array, forward: Forward) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return inputs, targets and the float32 weight of each prediction, each [..., S]."""
    marks = None
    if forward.training.reads_marks:
        # See `workloads.data.packing`. PADDING has all bits set, so it does not change.
        tokens, marks = tokens >> 1, tokens & 1
    targets = tokens[..., 1:]
    counts = jnp.ones(targets.shape, jnp.float32)
    if marks is not None:
        counts = 1 - marks[..., 1:].astype(jnp.float32)
    if forward.training.ignored_token is not None:
        counts *= targets != forward.training.ignored_token
    if forward.padded:
        counts *= targets != PADDING
    return tokens[..., :-1], targets, counts


def embed(tables: Tables, inputs: jax.Array, spec: ModelSpec) -> jax.Array:
    """Embed inputs [..., S] as [..., part of S, D]."""
    x = look_up(tables.first, own_part(inputs, (TENSOR,), inputs.ndim - 1))
    return x * jnp.asarray(spec.embed_dim**0.5, x.dtype) if spec.scaled_embedding else x


def positions_loss(
    tables: Tables, x: jax.Array, targets: jax.Array, counted: jax.Array, dealt: tuple[str, ...], forward: Forward
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the summed loss, the z-loss in it, and the number of positions.

    S of the normed x [..., part of S, D] is split over the axes `dealt`.
    """
    targets, counted = (own_part(array, dealt, array.ndim - 1).reshape(-1) for array in (targets, counted))
    head = LossHead(forward.model.logit_soft_cap, forward.training.z_loss, forward.on_tpu)
    loss, z_loss = summed_loss(x.reshape(-1, x.shape[-1]), tables.last, targets, counted, head)
    return loss, z_loss, jnp.sum(counted)


def run_layers(
    weights: Weights, x: jax.Array, inputs: jax.Array, counted: jax.Array, forward: Forward
) -> tuple[jax.Array, jax.Array]:
    """Run all layers that this device holds. Return their output and the sum of their balance losses."""
    segments, pattern = _segments(inputs, forward.training), forward.model.pattern

    def layer_of(reach: Reach) -> Layer:
        sequence = Positions(rotation(forward.model, inputs.shape[1], reach), segments)
        own = replace(forward, heads=replace(forward.heads, window=forward.model.window(reach)))

        def layer(x: jax.Array, one: Tree) -> tuple[jax.Array, jax.Array]:
            return _block(named(x, INPUT), weights.layer(one), sequence, counted, own)

        return rematerialised(layer, forward.training.remat)

    return _in_pattern({reach: layer_of(reach) for reach in dict.fromkeys(pattern)}, pattern, x, weights.layers)


def _in_pattern(
    layer_of: Mapping[Reach, Layer], pattern: Sequence[Reach], x: jax.Array, layers: Tree
) -> tuple[jax.Array, jax.Array]:
    """Run all layers, whose kinds repeat like `pattern`. Each run of equal layers in it is compiled once."""

    def runs(x: jax.Array, layers: Tree, kinds: Sequence[Reach]) -> tuple[jax.Array, jax.Array]:
        equal: list[tuple[Reach, int]] = [(reach, len([*same])) for reach, same in groupby(kinds)]
        balances: list[jax.Array] = []
        for (reach, _), part in zip(equal, _split(layers, [size for _, size in equal]), strict=True):
            x, balance = jax.lax.scan(layer_of[reach], x, part)
            balances.append(jnp.sum(balance))
        return x, sum(balances[1:], balances[0])

    count = jax.tree.leaves(layers)[0].shape[0]
    if len(layer_of) == 1:
        return runs(x, layers, pattern[:1] * count)
    rounds, rest = divmod(count, len(pattern))
    whole, cut = _split(layers, [count - rest, rest])
    by_round = jax.tree.map(lambda leaf: leaf.reshape(rounds, len(pattern), *leaf.shape[1:]), whole)
    x, balance = jax.lax.scan(lambda x, one: runs(x, one, pattern), x, by_round)
    if not rest:
        return x, jnp.sum(balance)
    x, last = runs(x, cut, pattern[:rest])
    return x, jnp.sum(balance) + last


def _split(layers: Tree, sizes: Sequence[int]) -> list[Tree]:
    """Split all arrays of `layers` into consecutive parts along their first axis."""
    leaves, structure = jax.tree.flatten(layers)
    parts = [jax.lax.split(leaf, sizes, axis=0) if len(sizes) > 1 else [leaf] for leaf in leaves]
    return [jax.tree.unflatten(structure, part) for part in zip(*parts, strict=True)]


def _block(
    x: jax.Array, weights: Tree, sequence: Positions, counted: jax.Array, forward: Forward
) -> tuple[jax.Array, jax.Array]:
    """Run a layer on [B, part of S, D]. Return the output of the same shape and the layer's balance loss."""
    spec, norm = forward.model, Norm.of(forward.model)
    head_norms = HeadNorms(norm, weights["query_scale"], weights["key_scale"]) if spec.query_key_norm else None

    def output(partial_sums: jax.Array, scale: str) -> jax.Array:
        own = _own_positions(partial_sums)
        return norm(own, weights[scale]) if spec.output_norms else own

    normed = _all_positions(norm(x, weights["attention_scale"]))
    attended = attend(normed, weights["query_key_value"], weights["out"], forward.heads, sequence, head_norms)
    x += output(attended, "attention_output_scale")
    normed = _all_positions(norm(x, weights["mlp_scale"]))
    if spec.experts is None:
        return x + output(_mlp(normed, weights, forward), "mlp_output_scale"), jnp.float32(0)
    activate, grouped = ACTIVATIONS[spec.activation], forward.grouped
    mixed, balance = route_and_mix(normed, weights, spec.experts, counted, activate, grouped)
    # Every device along `tensor` routes all positions in the same way.
    return x + output(mixed, "mlp_output_scale"), balance / jax.lax.axis_size(TENSOR)


def _mlp(x: jax.Array, weights: Tree, forward: Forward) -> jax.Array:
    # A CPU has fast code for products of two dimensions. Compiled for TPU, they cost a fifth of a step in copies.
    rows, activate = x if forward.on_tpu else x.reshape(-1, x.shape[-1]), ACTIVATIONS[forward.model.activation]
    gate, up = (named(product(rows, weights[name]), PROJECTION) for name in ("gate", "up"))
    return product(named(activate(gate) * up, PRODUCT), weights["down"]).reshape(x.shape)


def _all_positions(x: jax.Array) -> jax.Array:
    """Gather all of S from the devices' parts along `tensor`."""
    return jax.lax.all_gather(x, TENSOR, axis=1, tiled=True) if jax.lax.axis_size(TENSOR) > 1 else x


def _own_positions(partial_sums: jax.Array) -> jax.Array:
    """Sum along `tensor` what each device computed from its heads or columns, for this device's part of S."""
    if jax.lax.axis_size(TENSOR) == 1:
        return partial_sums
    return jax.lax.psum_scatter(partial_sums, TENSOR, scatter_dimension=1, tiled=True)


def _segments(inputs: jax.Array, training: TrainingSpec) -> jax.Array | None:
    """Return the number of each token's document in its row. The token that ends a document belongs to it."""
    if training.document_end is None:
        return None
    ends = (inputs == training.document_end).astype(jnp.int32)
    return jnp.cumsum(ends, axis=1) - ends


def _weight(rngs: nnx.Rngs, shape: tuple[int, ...], fan_in: int | None = None) -> nnx.Param[jax.Array]:
    deviation = (shape[-2] if fan_in is None else fan_in) ** -0.5
    return nnx.Param(deviation * jax.random.truncated_normal(rngs.params(), -3, 3, shape))
