"""Low-rank adapters of the matrices of a frozen model: LoRA, https://arxiv.org/abs/2106.09685.

A matrix W [in, out] of a layer is replaced by W + alpha / rank A B, with A [in, rank] and B [rank, out]. In training,
the product by A B is computed separately and added to the one by W. If W were replaced by the sum of the matrices, the
gradients by A and B would need the one by W: a third of the FLOPs of a layer and an array of the size of W. In
bfloat16, that sum would also round away adapters that are small compared with W. The matrices are added only on export.
"""

from collections.abc import Callable
from typing import NamedTuple, get_args

import jax
import jax.numpy as jnp

from workloads.spec import LoraSpec
from workloads.spec.training import LoraTarget
from workloads.training.layout import BLOCKS, Tree

type Multiply = Callable[[jax.Array, jax.Array], jax.Array]


class Adapted(NamedTuple):
    """A frozen matrix and its adapter, in place of the matrix."""

    frozen: jax.Array
    a: jax.Array
    b: jax.Array
    """B, already multiplied by alpha / rank."""


type Matrix = jax.Array | Adapted


def product(x: jax.Array, matrix: Matrix, multiply: Multiply = jnp.matmul, then: Multiply = jnp.matmul) -> jax.Array:
    """Return `multiply(x, matrix)`, for an adapted matrix plus `then(multiply(x, A), B)`."""
    if isinstance(matrix, Adapted):
        return multiply(x, matrix.frozen) + then(multiply(x, matrix.a), matrix.b)
    return multiply(x, matrix)


def initial_adapters(model: Tree, spec: LoraSpec, seed: int) -> Tree:
    """Return initial adapters in float32 for the weights `model`, which may be shapes.

    A is drawn like weights, and B is zero. The adapters are
    `{"blocks": {"gate_a": [layers, in, rank], "gate_b": [layers, rank, out], ...}}`, with the dimension of experts
    after that of layers.
    """
    blocks: Tree = {}
    for number, name in enumerate(get_args(LoraTarget)):
        if name in spec.targets:
            *stack, rows, columns = model[BLOCKS][name].shape
            key = jax.random.fold_in(jax.random.key(seed), number)
            drawn = jax.random.truncated_normal(key, -3, 3, (*stack, rows, spec.rank))
            blocks[f"{name}_a"] = rows**-0.5 * drawn
            blocks[f"{name}_b"] = jnp.zeros((*stack, spec.rank, columns))
    return {BLOCKS: blocks}


def adapted(layer: Tree, adapters: Tree) -> Tree:
    """Return the weights of one layer with its adapters."""
    return {
        name: Adapted(matrix, adapters[f"{name}_a"], adapters[f"{name}_b"]) if f"{name}_a" in adapters else matrix
        for name, matrix in layer.items()
    }


def scaled(adapters: Tree, spec: LoraSpec) -> Tree:
    """Return `adapters` with B multiplied by alpha / rank."""
    factor = spec.alpha / spec.rank
    blocks = adapters[BLOCKS]
    return {BLOCKS: {name: leaf * factor if name.endswith("_b") else leaf for name, leaf in blocks.items()}}


def merge_adapters(model: Tree, adapters: Tree, spec: LoraSpec) -> Tree:
    """Return the weights `model` with `adapters` added to them."""
    both = adapted(model[BLOCKS], scaled(adapters, spec)[BLOCKS])
    blocks = {
        name: matrix.frozen + matrix.a @ matrix.b if isinstance(matrix, Adapted) else matrix
        for name, matrix in both.items()
    }
    return {**model, BLOCKS: blocks}
